"""What editors and mypy know of graphc.nn, graphc.layers and graphc.optim."""

from __future__ import annotations

import ast
import keyword
import subprocess
import sys
from pathlib import Path

import pytest

from graphc import nn
from graphc.docs.nn import nn_stub

ROOT = Path(__file__).parents[2]
STUB = ROOT / "graphc" / "nn.pyi"

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
nn.relu(x, slope=3)  # wrong
nn.layer_nrom(x)  # wrong
Dense("64", 3)  # wrong
graphc.optim.adam(lr="a")  # wrong
"""


def test_the_types_of_nn_are_not_stale(update: bool) -> None:
    if update:
        STUB.write_text(nn_stub(), encoding="utf-8")
    advice = "write them anew: python -m graphc.docs.nn > graphc/nn.pyi"
    assert STUB.read_text(encoding="utf-8") == nn_stub(), advice


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
