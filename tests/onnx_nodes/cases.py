"""ONNX's node cases: a small model each, with inputs and what must come out."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from onnx import AttributeProto, ModelProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx_nodes import elementwise, networks, reductions, shapes, windows
from onnx_nodes.shapes import OFFERED
from onnx_nodes.table import TABLE, Call, NotOffered

FAMILIES = (elementwise, networks, reductions, shapes, windows)  # imported for their entries
Arrays = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Case:
    """A model, its inputs by name, and its results in order, compared within rtol and atol."""

    name: str
    model: ModelProto
    inputs: Arrays
    results: tuple[np.ndarray[Any, Any], ...]
    rtol: float
    atol: float

    @property
    def static(self) -> Arrays:
        """The inputs that must be known at compile time: shapes, axes, counts."""
        asked = {x for node in self.model.graph.node for x in _static_inputs(node)}
        for node in reversed(self.model.graph.node):
            if node.op_type not in ("Shape", "Size") and asked & {*node.output}:
                asked |= {*node.input}
        return {k: v for k, v in self.inputs.items() if k in asked}

    @property
    def fed(self) -> Arrays:
        """The inputs of the traced step."""
        static = self.static
        return {k: v for k, v in self.inputs.items() if k not in static}

    def run(self, fed: Mapping[str, Any]) -> list[Any]:
        """The results for inputs that are traced or plain. Raises NotOffered."""
        graph = self.model.graph
        values: dict[str, Any] = {"": None, **self.static, **fed}
        values |= {x.name: numpy_helper.to_array(x) for x in graph.initializer}
        version = max((x.version for x in self.model.opset_import if not x.domain), default=0)
        for node in graph.node:
            if node.op_type not in TABLE:
                raise NotOffered(f"no {node.op_type}")
            call = Call(node.op_type, _attributes(node), version, len(node.output))
            found = TABLE[node.op_type].run(call, *(values[x] for x in node.input))
            found = found if isinstance(found, tuple) else (found,)
            values |= zip(node.output, found, strict=False)
        return [values[x.name] for x in graph.output]


def _static_inputs(node: Any) -> list[str]:
    entry = TABLE.get(node.op_type)
    return [node.input[i] for i in (entry.static if entry else ()) if i < len(node.input)]


def _attributes(node: Any) -> dict[str, Any]:
    values = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    tensors = {a.name for a in node.attribute if a.type == AttributeProto.TENSOR}
    return {k: numpy_helper.to_array(v) if k in tensors else v for k, v in values.items()}


@cache
def cases() -> tuple[Case, ...]:
    """All node cases of the installed ONNX; their random numbers are drawn from one seed."""
    np.random.seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    return tuple(x for case in found if (x := _case(case)) is not None)


def _case(case: Any) -> Case | None:
    """A case of arrays; None for one of sequences, optional values or strings."""
    inputs, results = case.data_sets[0]
    if not all(isinstance(x, np.ndarray | np.generic) for x in (*inputs, *results)):
        return None
    given = list(case.model.graph.input)
    named = zip((x.name for x in given), map(np.asarray, inputs), strict=True)
    return Case(
        case.name, case.model, dict(named), tuple(map(np.asarray, results)), case.rtol, case.atol
    )


def foreign(case: Case) -> str:
    """A dtype of the case that graphc does not have, or nothing."""
    for x in (*case.inputs.values(), *case.results):
        if x.dtype.name not in OFFERED:
            return x.dtype.name
    return ""


def differs(found: Any, want: np.ndarray[Any, Any], case: Case) -> str:
    """How a result differs, or nothing: NaN and infinities must be in the same places."""
    found = np.asarray(found, None if isinstance(found, np.ndarray) else want.dtype)  # or a number
    if found.shape != want.shape:
        return f"shape {found.shape}, not {want.shape}"
    whole = want.dtype.kind in "iub"
    if found.dtype != want.dtype and not (whole and found.dtype.kind == want.dtype.kind):
        return f"dtype {found.dtype}, not {want.dtype}"
    if whole:  # indices are i32 in graphc, and i64 in ONNX
        return "" if np.array_equal(found, want) else f"{found}, not {want}"
    rtol = max(case.rtol, 2.0**-6 if want.dtype.name == "bfloat16" else 0)  # two ulp
    got, want = found.astype(np.float64), want.astype(np.float64)
    odd = ~(np.isfinite(got) & np.isfinite(want))
    same = np.array_equal(got[odd], want[odd], equal_nan=True)
    near = np.abs(got[~odd] - want[~odd]) <= case.atol + rtol * np.abs(want[~odd])
    return "" if same and near.all() else f"{found}, not {want}"


def groups(found: Sequence[Case], size: int) -> Iterator[Sequence[Case]]:
    """The cases in groups that are compiled together."""
    for i in range(0, len(found), size):
        yield found[i : i + size]
