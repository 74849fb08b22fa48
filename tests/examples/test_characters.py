"""The character model, in NumPy: it reaches its figure, and is the same under three strategies."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[2] / "examples" / "characters.py"
FIGURE = 3.4  # bits per character


@pytest.fixture(scope="module")
def characters() -> ModuleType:
    """The example as a module."""
    spec = spec_from_file_location("characters", FILE)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def bits(example: ModuleType, strategy: str, backend: str, steps: int, batches: int) -> float:
    """Bits per character of some held-out batches after some steps."""
    train, test = example.text()
    with example.trainer(strategy, steps, backend) as step:
        for batch in example.batches(train, steps):
            step.step(batch)
        return float(step.evaluate(islice(example.in_order(test), batches))["bits"])


def test_characters_beat_the_entropy_of_single_characters(
    characters: ModuleType, backend_name: str
) -> None:
    got = bits(characters, "mirrored(2)", backend_name, characters.STEPS, 20)
    assert got < FIGURE < characters.unigram_bits(*characters.text())


@pytest.mark.ci
def test_characters_are_the_same_under_three_strategies(
    characters: ModuleType, backend_name: str
) -> None:
    first, *others = (
        bits(characters, strategy, backend_name, 12, 3)
        for strategy in ("one_device()", "mirrored(3) * accumulate(2)", "tensor_split(2)")
    )
    assert others == pytest.approx([first, first], rel=1e-3)


def test_held_out_text_is_no_part_of_the_training_text(characters: ModuleType) -> None:
    train, test = (bytes(part.astype("uint8")) for part in characters.text())
    pieces = [test[i : i + 200] for i in range(0, len(test) - 200, 5_000)]
    assert not any(piece in train for piece in pieces)
