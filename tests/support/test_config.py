"""The environment is read in one place, and what means nothing there is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.support import config
from graphc.support.errors import GraphcError


@pytest.fixture(autouse=True)
def read_anew() -> Iterator[None]:
    config.get.cache_clear()
    yield
    config.get.cache_clear()


@pytest.mark.parametrize(
    ("name", "value", "help"),
    [("GRAPHC_NATIVE", "yes", "0 or 1"), ("GRAPHC_THREADS", "two", "a number"),
     ("GRAPHC_CHECK_MEMORY", "yes", "0 or 1"),
     ("GRAPHC_THREADS", "-1", "a number"), ("GRAPHC_VERIFY", "x", "a number")],
)  # fmt: skip
def test_a_value_that_means_nothing_is_an_error(
    name: str, value: str, help: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(GraphcError, match=f"{name} is '{value}'") as found:
        config.get()
    assert found.value.code == "G0707"
    assert help in (found.value.help or "")


def test_an_empty_value_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GRAPHC_NATIVE", "GRAPHC_THREADS", "GRAPHC_VERIFY"):
        monkeypatch.setenv(name, "")
    found = config.get()
    assert (found.native, found.threads, found.verify) == (None, 0, 1)


def loss(params: Any, batch: Any) -> Any:
    return np.mean(params["w"] * batch["x"])


def test_each_level_of_debug_prints_more(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("llvmlite")
    marks = ("differentiate", "graphc-ir", "calls of", "define ")
    for level in range(len(marks) + 1):
        monkeypatch.setenv("GRAPHC_DEBUG", str(level))
        config.get.cache_clear()
        x = np.ones((4, 3), np.float32)
        with graphc.compile(loss, {"w": x[0]}, {"x": x}, optimizer=graphc.optim.sgd(1.0)) as made:
            made.step({"x": x})
        printed = capfd.readouterr().err
        assert [mark in printed for mark in marks] == [i < level for i in range(len(marks))]
