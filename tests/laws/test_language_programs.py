"""Law: a program in the language gives what NumPy gives, and has the traced program's gradients.

The functions are those of laws/programs, written in the language as far as it has words for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from laws.programs import in_language
from laws.programs.grow import EDGES, grow
from laws.programs.in_language import Unsaid, differs_in_language, sayable
from laws.programs.in_language import in_language as written
from shares import dealt

from graphc.support.errors import GraphcError

CHUNK = 100
FIRST = 300_000  # seeds that the other law does not try


def check(seeds: Iterable[int]) -> None:
    """Nothing differs, and enough is compared to show something."""
    tally, refused = Counter[str](), Counter[str]()
    for seed in seeds:
        try:
            text = differs_in_language(seed)
        except Unsaid:
            tally["unsaid"] += 1
        except GraphcError as error:
            tally["refused"] += 1
            refused[f"{error.code} {error.message}"] += 1
        else:
            assert not text, f"seed {seed}: {text}\n\n{written(sayable(grow(seed)))}"
            tally["compared"] += 1
    assert tally["compared"] > 0.85 * sum(tally.values()), (tally, refused.most_common(5))


@pytest.mark.parametrize("first", dealt(range(FIRST, FIRST + 5_000, CHUNK), 1, 4))
def test_programs_in_the_language_are_what_numpy_makes_of_them(first: int) -> None:
    check(range(first, first + CHUNK))


@pytest.mark.ci
def test_programs_at_the_edges_of_dtypes_in_the_language() -> None:
    check(range(EDGES, EDGES + CHUNK))


def test_a_wrong_word_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function of the language that is another one than NumPy's."""
    monkeypatch.setitem(in_language.OTHER_NAMES, "multiply", "add")
    monkeypatch.setitem(in_language.OTHER_NAMES, "fabs", "neg")
    with pytest.raises(AssertionError, match="instead of"):
        check(range(FIRST, FIRST + CHUNK))


@pytest.mark.parametrize("text, want", {
    "np.sum(x[:, None] * -2, axis=(0, 1), keepdims=True)": "sum((x[:, none] * (-2)), axis=(0, 1), keepdims=true)",
    "x.reshape(2, -1)[..., ::-1]": "reshape(x, (2, (-1)))[..., ::(-1)]",
    "np.einsum('ij,j->i', x, y).astype(np.int32)": 'cast(einsum("ij,j->i", x, y), i32)',
    "x.T @ y < x.shape[0]": "((x.T @ y) < x.shape[0])",
}.items())  # fmt: skip
def test_expressions_in_the_language(text: str, want: str) -> None:
    assert in_language.said(text) == want


@pytest.mark.parametrize("text", ["x += 1", "np.ptp(x)", "np.take(x, y, mode='clip')", "x | y"])
def test_what_has_no_words_is_said(text: str) -> None:
    with pytest.raises(Unsaid):
        in_language.said(text)
