"""Typical mistakes of someone who comes from PyTorch, Keras, JAX or scipy, and what is said of each.

`mistakes/*.txt` hold the mistakes and the exact messages. An entry is a line `>>> code` and what
follows it up to the next one. In `in_a_step.txt` the code stands in the traced function, of which x
is an f32[4,3], y an i64[4], and p["w"] an f32[3,3]; in `around_a_step.txt` it stands beside it; in
`training.txt` there is a trainer.
`pytest tests/frontend/test_mistakes.py --update` writes the messages anew, for new entries too.
"""

from __future__ import annotations

import linecache
import math
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.support.errors import GraphcError, GraphcWarning

HERE = Path(__file__).with_name("mistakes")
FILE = "step.py"
X = np.arange(12.0, dtype=np.float32).reshape(4, 3)
Y = np.array([0, 2, 1, 0])
PARAMS = {"w": np.ones((3, 3), np.float32), "b": np.zeros(3, np.float32)}

STEP = """
def step(p, b):
    x, y = b["x"], b["y"]
    {code}
    return np.mean(x @ p["w"] + p["b"])

graphc.trace(step, params, batch)
"""
AROUND = """
def step(p, b):
    return np.mean(nn.cross_entropy(b["x"] @ p["w"] + p["b"], b["y"]))

def compiled():
    return graphc.compile(step, params, batch, optimizer=optim.sgd(0.1))

{code}
"""
TRAINING = """
def step(p, b):
    return np.mean(nn.cross_entropy(b["x"] @ p["w"] + p["b"], b["y"]))

{code}
"""
FORMS = {"in_a_step": STEP, "around_a_step": AROUND, "training": TRAINING}


class TensorDataset:
    """What matters of torch's here: it has examples, and no `__iter__`."""

    __module__ = "torch.utils.data"

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, i: int) -> tuple[Any, Any]:
        return X[i], Y[i]


class DataFrame:
    """What matters of pandas' here: a loop over it gives names of columns."""

    __module__ = "pandas"

    def __iter__(self) -> Iterator[str]:
        return iter(["x", "y"])


class Adam:
    """What matters of torch's here: the module of its class."""

    __module__ = "torch.optim"


def entries(name: str) -> Iterator[tuple[str, str]]:
    """The code and the message of each entry."""
    for part in (HERE / f"{name}.txt").read_text(encoding="utf-8").split(">>> ")[1:]:
        code, _, message = part.partition("\n")
        yield code, message.strip("\n")


@cache
def trainer() -> graphc.StepTrainer:
    """That of `training.txt`."""

    def step(p: Any, b: Any) -> Any:
        return np.mean(graphc.nn.cross_entropy(b["x"] @ p["w"] + p["b"], b["y"]))

    return graphc.compile(step, PARAMS, {"x": X, "y": Y}, optimizer=graphc.optim.sgd(0.1))


def said(form: str, code: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is said of the code, by warnings and by an error."""
    source = form.replace("{code}", code).lstrip("\n")
    monkeypatch.setitem(
        linecache.cache, FILE, (len(source), None, source.splitlines(keepends=True), FILE)
    )
    batch = {"x": X, "y": Y}
    names: dict[str, Any] = {
        "np": np, "math": math, "graphc": graphc, "nn": graphc.nn, "optim": graphc.optim, "X": X,
        "Y": Y, "params": PARAMS, "batch": batch, "batches": [batch, batch],
        "source": graphc.data.arrays(batch), "trainer": trainer(), "TensorDataset": TensorDataset,
        "DataFrame": DataFrame, "torch_adam": Adam(),
    }  # fmt: skip
    texts = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            exec(compile(source, FILE, "exec"), names)
        except GraphcError as error:
            texts = [error.render()]
        except Exception as error:
            texts = [f"{type(error).__name__}: {error}"]
    notes = [str(w.message) for w in caught if issubclass(w.category, GraphcWarning)]
    return "\n".join([*notes, *texts]) or "nothing is said"


@pytest.mark.parametrize("name", FORMS)
def test_a_mistake_is_answered_at_its_line(
    name: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    known = list(entries(name))
    found = [(code, said(FORMS[name], code, monkeypatch)) for code, _ in known]
    if request.config.getoption("--update"):
        text = "\n".join(f">>> {code}\n{message}\n" for code, message in found)
        (HERE / f"{name}.txt").write_text(text, encoding="utf-8")
        return
    assert found == known


def test_every_message_has_a_place_and_a_hint() -> None:
    every = [entry for name in FORMS for entry in entries(name)]
    assert len(every) >= 300
    for code, message in every:
        assert message.startswith(("error[G", "warning[G")), f"{code}: {message}"
        assert f"--> {FILE}:" in message and "^" in message, f"{code}: {message}"
        assert "spec/" not in message, f"{code} names a file that pip does not install"
        assert len(message) < 1_500, code
    without = [code for code, message in every if "= help:" not in message]
    assert not without
