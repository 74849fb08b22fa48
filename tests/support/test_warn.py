"""A warning is at the user's line, not at one of graphc."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn
from graphc.support.errors import GraphcError, GraphcWarning
from graphc.support.warn import warn


def tied(params: Any, batch: Any) -> Any:
    """Warns that its table is looked up and used as a whole."""
    logits = params["table"][batch["ids"]] @ params["table"].T
    return np.mean(nn.cross_entropy(logits, batch["ids"]))


PARAMS = {"table": np.ones((2000, 4), np.float32)}
BATCH = {"ids": np.arange(6, dtype=np.int32)}


def compiled(strategy: str = "one_device()") -> graphc.StepTrainer:
    return graphc.compile(tied, PARAMS, BATCH, optimizer=graphc.optim.adam(1e-3), strategy=strategy)


@pytest.mark.parametrize("strategy", ["one_device()", "mirrored(2)"])
def test_a_warning_of_a_pass_is_at_the_line_that_it_is_about(strategy: str) -> None:
    with pytest.warns(GraphcWarning, match="G0314") as seen, compiled(strategy):
        pass
    lines = Path(__file__).read_text().splitlines()
    for w in seen:
        assert w.filename == __file__
        assert "params" in lines[w.lineno - 1]


def test_a_warning_without_a_place_is_at_the_line_that_calls_graphc() -> None:
    with pytest.warns(GraphcWarning) as seen:
        warn(GraphcError("G0314", "something"))
    assert [w.filename for w in seen] == [__file__]


def test_a_line_warns_once_and_filters_see_its_module() -> None:
    def again() -> None:
        warn(GraphcError("G0314", "only once"))

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        again()
        again()
        warnings.filterwarnings("ignore", module=__name__)
        warn(GraphcError("G0314", "not at all"))
    assert len(seen) == 1
