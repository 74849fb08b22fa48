"""What the driver says where Ray is not installed, or was imported without a token."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import graphc_ray.sessions
import pytest
from graphc_ray import RayPlugin

from graphc.compiler.driver import compile_module
from graphc.frontend.language.load import module_of_source
from graphc.plan.plan import Plan
from graphc.runtime.trainer import Trainer
from graphc.strategies import parse_strategy
from graphc.support.errors import GraphcError

Patch = pytest.MonkeyPatch
SOURCE = """
const batch = 4
step model(x: f32[batch, 6]) {
    param w: f32[6] = ones()
    minimize mean(x @ w) with sgd(0.1)
}
"""


def plan() -> Plan:
    strategy = parse_strategy("parameter_server(1, 1, staleness=1)")
    return compile_module(module_of_source(SOURCE), strategy)


def test_without_ray_the_driver_says_how_to_get_it(monkeypatch: Patch) -> None:
    monkeypatch.setattr(graphc_ray.sessions, "find_spec", lambda name: None)
    with pytest.raises(
        GraphcError, match=r"Ray is not installed: pip install .graphc\[ray\]"
    ) as caught:
        Trainer(plan(), driver=RayPlugin())
    assert caught.value.code == "G0702"


def test_ray_without_a_token_is_not_used(monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False))  # type: ignore[arg-type]
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setattr(graphc_ray.sessions, "find_spec", lambda name: True)
    with (
        Trainer(plan(), driver=RayPlugin()) as trainer,
        pytest.raises(GraphcError, match="Ray was imported without a token") as caught,
    ):
        trainer.fit_stream([{}])
    assert caught.value.code == "G0577"
    assert trainer.valid
