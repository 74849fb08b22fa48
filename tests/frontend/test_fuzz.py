"""Law 4: whatever the text, there is a result, or an error with a known code, a place and a caret.

A seed makes a program (tests/frontend/fuzz.py); processes with limits on memory and time compile it
and sometimes run a step. `python tests/frontend/fuzz.py FIRST LAST` prints what it finds.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from graphc.frontend.language.load import load_module, module_of_source
from graphc.support.errors import GraphcError
from graphc.syntax.parse import parse_strategy

sys.path.insert(0, str(Path(__file__).parent))
import fuzz

WORKERS = 2
FEW = 300  # programs for the default command
SEEDS = 2_000
CHUNK = 50


def outcomes(first: int, last: int) -> Iterator[fuzz.Outcome]:
    chunks = [range(at, min(at + CHUNK, last)) for at in range(first, last, CHUNK)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(WORKERS, context, initializer=fuzz.limit_process) as pool:
        for found in pool.map(fuzz.outcomes, chunks):
            yield from found


def check(first: int, last: int) -> Counter[str]:
    found: Counter[str] = Counter()
    defects = []
    for made in outcomes(first, last):
        found[made.kind] += 1
        if made.kind == "defect":
            defects.append(f"seed {made.seed}:\n{made.text}\n{made.reason}")
    assert not defects, "\n\n".join(defects[:3])
    return found


@pytest.mark.parametrize("seeds", [FEW, pytest.param(SEEDS, marks=pytest.mark.ci)])
def test_programs_end_in_a_result_or_a_good_error(seeds: int) -> None:
    found = check(0, seeds)
    assert found.total() == seeds
    assert found["result"] > seeds / 20
    assert len(found) > 20, "the programs fail in too few ways to show much"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_programs() -> None:
    check(SEEDS, 100_000)


# -- hostile sizes ---------------------------------------------------------------------------------

BODY = "step s(x: f32[batch, 3]) {\n%s\nreport y = sum(x)\n}"
HOSTILE = {
    "nested parentheses": ("G0104", BODY % ("a = " + "(" * 100_000 + "1" + ")" * 100_000)),
    "nested lists": ("G0104", BODY % ("a = " + "[" * 100_000 + "]" * 100_000)),
    "nested blocks": ("G0104", BODY % ("if true { " * 100_000 + "}" * 100_000)),
    "open parentheses": ("G0104", BODY % ("a = " + "(" * 100_000)),
    "minus signs": ("G0104", BODY % ("a = " + "-" * 30_000 + "1")),
    "powers": ("G0104", BODY % ("a = " + "2 ** " * 20_000 + "1")),
    "calls": ("G0104", BODY % ("a = " + "relu(" * 50_000 + "1" + ")" * 50_000)),
    "members": ("G0104", BODY % ("a" + ".a" * 20_000 + " = 1")),
    "line of 10 MB": ("G0105", BODY % ("a = " + "1 + " * 2_500_000 + "1")),
    "name of 10 MB": ("G0120", BODY % ("a = " + "b" * 10_000_000)),
    "string of 10 MB": ("G0121", BODY % ('report z = einsum("' + "b" * 10_000_000 + '", x)')),
    "number of 10 MB": ("G0103", BODY % ("a = " + "9" * 10_000_000)),
    "comment of 10 MB": ("", BODY % ("# " + "b" * 10_000_000)),
    "file of 20 MB": ("G0105", "# " + "b" * 20_000_000),
    "tensor": ("G0204", BODY % "param w: f32[2**40, 2**40] = ones()"),
    "input": ("G0204", "step s(x: f32[2**40, 2**40]) { report y = sum(x) }"),
    "product": ("G0204", BODY % "h = zeros([2**21, 1]) @ zeros([1, 2**21])"),
    "rank": ("G0204", BODY % f"h = zeros([{'1, ' * 9_000}])"),
    "loop": ("G0123", BODY % "for i in range(10**9) { a = i }"),
    "loops in loops": ("G0130", BODY % "for i in range(10**5) { for j in range(10**5) { a = i } }"),
    "loops in a function": (
        "G0130",
        "fn f(x) {\nfor i in range(10**5) { for j in range(10**5) { x = i } }\nreturn x\n}\n"
        + BODY % "a = f(1)",
    ),
    "recursion": ("G0124", "fn f(x) = f(x) + f(x)\n" + BODY % "a = f(1)"),
    "recursion of two": ("G0124", "fn f(x) = g(x)\nfn g(x) = [f(x)]\n" + BODY % "a = f(1)"),
    "recursion in a default": ("G0124", "fn f(x=f()) = x\n" + BODY % "a = f()"),
    "calls that double": (
        "G0130",
        "\n".join(f"fn f{i}(x) = f{i + 1}(x) + f{i + 1}(x)" for i in range(100))
        + "\nfn f100(x) = x\n" + BODY % "a = f0(1)",
    ),
    "lists that double": ("G0122", BODY % "a = [1]\nfor i in range(60) { a = a + a }"),
    "strings that double": ("G0122", BODY % 'a = "b"\nfor i in range(60) { a = a + a }'),
    "numbers that square": ("G0122", BODY % "a = 3\nfor i in range(60) { a = a * a }"),
    "power": ("G0122", BODY % "a = 9 ** 9 ** 9 ** 9"),
    "list of shapes": ("G0121", BODY % "a = [1]\nfor i in range(14) { a = a + a }\nb = zeros(a)"),
    "nodes": ("G0209", BODY % "for i in range(100000) { for j in range(9) { x = x + 1.0 } }"),
    "gradients": ("G0130", BODY % "for i in range(100000) { x = x + grad(sum(sin(x)), x) }"),
    "gradients that double": ("G0209", BODY % "y = sum(sin(x))\nfor i in range(99) { y = sum(grad(y, x) * sin(x)) }"),
    "sum": ("", BODY % ("a = 1" + " + 1" * 20_000)),
    "imports": ("G0106", 'import "nowhere.gc"\n' * 10_000),
    "data": ("G0126", 'data d = npz("a", batch=1, ' + ", ".join(["shuffle()"] * 1000) + ")\n" + BODY % ""),
    "statements": ("", BODY % ("a = 1\n" * 20_000)),
    "functions": ("", "\n".join(f"fn f{i}(x) = x" for i in range(5_000)) + "\n" + BODY % ""),
    "variables": ("", BODY % "for i in range(3000) { param w[i]: f32 = 1.0 }"),
}  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_sizes_are_refused_soon(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz.evaluate, "MAX_WORK", 400_000)
    monkeypatch.setattr(fuzz.builder, "MAX_NODES", 20_000)
    code, text = HOSTILE[name]
    start = time.process_time()  # CPU seconds: other work on the machine does not count
    try:
        module_of_source(text, "hostile.gc", {"batch": 4})
    except GraphcError as error:
        assert error.code == code, error.render()[:2_000]
        assert error.span is not None
        assert len(error.render()) < 2_000
        assert "^" in error.render()
    else:
        assert not code
    assert time.process_time() - start < 20


@pytest.mark.parametrize("n", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_many_imports_of_one_file(tmp_path: Path, n: int) -> None:
    (tmp_path / "a.gc").write_text("const k = 1")
    (tmp_path / "main.gc").write_text('import "a.gc"\n' * n + BODY % "")
    load_module(tmp_path / "main.gc", {"batch": 4})


def test_a_hostile_strategy_is_refused() -> None:
    for text in ("(" * 100_000, "mirrored(" * 10_000, "a." * 10_000, "2 * " * 10_000, "\x00"):
        with pytest.raises(GraphcError) as caught:
            parse_strategy(text)
        assert len(caught.value.render()) < 2_000
