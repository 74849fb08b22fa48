"""What editors and mypy know of graphc.nn, graphc.layers and graphc.optim."""

from __future__ import annotations

import ast
import keyword
import subprocess
import sys
from pathlib import Path

import pytest

import graphc
from graphc import nn
from graphc.docs.nn import nn_stub
from graphc.docs.optim import optim_stub
from graphc.frontend.language.load import module_of_source
from graphc.support.errors import GraphcError

ROOT = Path(__file__).parents[2]
STUB = ROOT / "graphc" / "nn.pyi"
STUBS = {"nn": nn_stub, "optim": optim_stub}

SNIPPET = """\
import numpy as np

import graphc
from graphc import nn
from graphc.layers import Dense, Dropout, Sequential

x = np.ones((3, 4), np.float32)
reveal_type(graphc.nn.relu(x))
reveal_type(nn.one_hot(x, 3).shape)
reveal_type(nn.lstm_cell(x, x, x, x, x))
reveal_type(Dense(3, 4)(x))
model = Sequential(Dense(64, 128), nn.relu, Dropout(rate=0.1), Dense(128, 10, bias=False))
graphc.optim.adam(lr=graphc.optim.cosine_decay(1e-3, 100))
chained = graphc.optim.chain(graphc.optim.clip_by_value(1.0), graphc.optim.sgd(learning_rate=0.1))
graphc.compile(lambda p, b: p, x, x, optimizer=graphc.optim.adamw(learning_rate=1e-3))
nn.relu(x, slope=3)  # wrong
nn.layer_nrom(x)  # wrong
Dense("64", 3)  # wrong
graphc.optim.adam(lr="a")  # wrong
graphc.optim.adam(lrate=1e-3)  # wrong
"""


@pytest.mark.parametrize("name", STUBS)
def test_the_types_are_not_stale(name: str, update: bool) -> None:
    text, file = STUBS[name](), ROOT / "graphc" / f"{name}.pyi"
    if update:
        file.write_text(text, encoding="utf-8")
    advice = f"write them anew: python -m graphc.docs.{name} > graphc/{name}.pyi"
    assert file.read_text(encoding="utf-8") == text, advice


def test_every_function_of_nn_has_a_type_and_a_docstring() -> None:
    tree = ast.parse(STUB.read_text(encoding="utf-8"))
    found = {n.name: ast.get_docstring(n) for n in tree.body if isinstance(n, ast.FunctionDef)}
    assert set(found) == {name for name in dir(nn) if not keyword.iskeyword(name)}
    assert all(found.values())


@pytest.mark.ci
def test_mypy_knows_what_a_user_writes(tmp_path: Path) -> None:
    script = tmp_path / "snippet.py"
    script.write_text(SNIPPET, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--hide-error-context", "--no-color-output"]
    done = subprocess.run([*command, str(script)], cwd=ROOT, capture_output=True, text=True)
    lines = [line.partition("snippet.py:")[2] for line in done.stdout.splitlines()]
    revealed = [line.partition("type is ")[2].strip('"') for line in lines if "Revealed" in line]
    array = "numpy.ndarray[tuple[Any, ...], numpy.dtype[Any]]"
    assert revealed == [array, "tuple[Any, ...]", f"tuple[{array}, {array}]", array]
    wrong = [n for n, text in enumerate(SNIPPET.splitlines(), 1) if text.endswith("# wrong")]
    assert sorted({int(line.split(":")[0]) for line in lines if "error:" in line}) == wrong


def test_learning_rate_is_another_word_for_lr() -> None:
    optim = graphc.optim
    for name in optim.__all__:
        made = getattr(optim, name)
        is_optimizer = isinstance(made, type) and issubclass(made, optim.Optimizer)
        if is_optimizer and "lr" in getattr(made, "__dataclass_fields__", {}):
            assert made(learning_rate=0.25) == made(lr=0.25) == made(0.25), name
            for both in (
                lambda m=made: m(0.25, learning_rate=1.0),
                lambda m=made: m(lr=1.0, learning_rate=1.0),
            ):
                with pytest.raises(
                    GraphcError, match=f"{name}: both lr and learning_rate are given"
                ):
                    both()


def test_gc_files_know_learning_rate_too() -> None:
    source = """
const batch = 4
step a(x: f32[batch, 8]) {
    param w: f32[8] = ones()
    minimize mean(x @ w) with adam(learning_rate=1e-3)
}
"""
    (objective,) = module_of_source(source).train.objectives
    assert objective.optimizer == graphc.optim.adam(lr=1e-3)
