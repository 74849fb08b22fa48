"""`graphc run --set NAME=VALUE` sets hyperparameters of a program or of a plan."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


@pytest.fixture
def program(folder: Path) -> str:
    text = (folder / "line.gc").read_text()
    text = text.replace("sgd(0.1)", "sgd(lr)").replace(
        "    param w:", "    hyper lr = 0.1\n    param w:"
    )
    (folder / "line.gc").write_text(text)
    return "line.gc"


def test_a_hyperparameter_is_set_from_the_command_line(program: str, call: Call) -> None:
    def run(*args: str) -> Any:
        result = call("run", *args, "--json")
        assert result.status == 0, result.err
        return json.loads(result.out)["params_sha256"]

    own, same, other = run(program), run(program, "--set", "lr=0.1"), run(program, "--set", "lr=.2")
    assert own == same != other
    call("compile", program)
    assert run("line.plan", "--set", "lr=0.2") == other
    assert run(program, "--set", "lr=9", "--set", "lr=2e-1") == other


@pytest.mark.parametrize(
    "text, words",
    [
        ("lr", "not NAME=VALUE"), ("lr=much", "'much' in 'lr=much' is not a number"),
        ("ler=1", "did you mean 'lr'?"), ("lr=nan", "error[G0572]"), ("=1", "error[G0571]"),
    ],
)  # fmt: skip
def test_a_mistake_names_what_was_written(program: str, call: Call, text: str, words: str) -> None:
    result = call("run", program, "--set", text)
    assert result.status and words in result.err
    assert "-->" not in result.err  # no line of Python is the user's
