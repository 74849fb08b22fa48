"""ONNX's own node cases hold, on every path that computes; what can't be written is listed."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from graphc_numpy import NumpyBackend
from onnx_nodes.cases import cases, differs, groups
from onnx_nodes.judge import refusals, wrong
from shares import every

from graphc.runtime.backends.backend import Backend
from graphc.runtime.backends.executor import KernelBackend
from graphc.runtime.backends.reference import BACKEND as REFERENCE

REFUSED = Path(__file__).with_name("refused.txt")
LEAST = 1285  # cases that hold, of those of arrays in ONNX 1.23
GROUP = 40  # cases that are compiled together

BACKENDS: dict[str, Backend] = {
    "native": NumpyBackend(native=True),
    "calls": NumpyBackend(native=False),
    "reference": REFERENCE,
}


def known() -> dict[str, str]:
    """The cases that are not run, with the reason."""
    found, reason = {}, ""
    for line in REFUSED.read_text().splitlines():
        if line.startswith("    "):
            found[line.strip()] = reason
        elif line and not line.startswith("#"):
            reason = line.removesuffix(":")
    return found


def written(found: dict[str, str]) -> str:
    """The text of the list, by reason."""
    lines = ["# ONNX node cases that graphc can't say, by reason; written by pytest --update."]
    pairs = sorted((reason, name) for name, reason in found.items())
    for reason, names in groupby(pairs, key=lambda pair: pair[0]):
        lines += ["", f"{reason}:", *(f"    {name}" for _, name in names)]
    return "\n".join(lines) + "\n"


@pytest.mark.ci
def test_what_is_refused_is_listed_with_its_reason(update: bool) -> None:
    found = refusals(cases())
    if update:
        REFUSED.write_text(written(found))
    assert {*found} <= {*known()}, "cases are refused that were not"
    names = {case.name for case in cases()}
    stale = {*known()} & names - {*found}
    assert not stale, "these can be written by now: pytest --update takes them from the list"
    assert len(names - {*found}) >= LEAST


@pytest.mark.parametrize("part", every(4, range(4)))
@pytest.mark.parametrize("backend", every(3, ["native", "calls", "reference"]))
def test_node_cases_hold(backend: str, part: int) -> None:
    listed = known()
    found: dict[str, str] = {}
    for group in groups([c for c in cases() if c.name not in listed][part::4], GROUP):
        found |= wrong(group, BACKENDS[backend])
    assert not found, "\n".join(f"{name}: {text}" for name, text in found.items())


def test_a_wrong_result_is_no_match() -> None:
    case = next(c for c in cases() if c.name == "test_add")
    assert not wrong([case], KernelBackend("right", lambda op, xs: op.run(*xs)))
    found = wrong([case], KernelBackend("negated", lambda op, xs: np.negative(op.run(*xs))))
    assert found[case.name].startswith("result 0: ")


def test_a_nan_matches_only_a_nan_in_its_place() -> None:
    case = next(c for c in cases() if c.name == "test_add")
    nan, inf = np.array([np.nan, 1.0]), np.array([1.0, np.inf])
    assert not differs(nan, nan, case)
    assert differs(nan, np.array([1.0, 1.0]), case)
    assert differs(nan, nan[::-1], case)
    assert differs(-inf, inf, case)
