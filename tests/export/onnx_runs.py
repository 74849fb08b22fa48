"""Runs ONNX models, and says where results differ from graphc's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

# How far results may lie apart, relative to the largest of them: some units in the last place, as
# sums are added up in another order, and functions are rounded differently.
TOLERANCE = {"float64": 1e-12, "float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}
Arrays = Mapping[str, np.ndarray[Any, Any]]


def run_reference(model: onnx.ModelProto, inputs: Arrays) -> dict[str, Any]:
    """The results of a model by name, by ONNX's reference runtime."""
    with np.errstate(all="ignore"):
        found = ReferenceEvaluator(model).run(None, dict(inputs))
    return dict(zip([x.name for x in model.graph.output], found, strict=True))


def differs(have: Any, want: Any, tolerance: float = 0) -> str:
    """How a result differs, or nothing: integers and bools are equal, NaN and infinities are in the
    same places, and other floats lie within the tolerance."""
    have, want = np.asarray(have), np.asarray(want)
    if (have.shape, have.dtype) != (want.shape, want.dtype):
        return f"{have.dtype}{have.shape}, not {want.dtype}{want.shape}"
    if want.dtype.name not in TOLERANCE:
        return "" if np.array_equal(have, want) else f"{have}, not {want}"
    a, b = have.astype(np.float64), want.astype(np.float64)
    odd = ~(np.isfinite(a) & np.isfinite(b))
    if not np.array_equal(a[odd], b[odd], equal_nan=True):
        return f"{have}, not {want}"
    a, b = a[~odd], b[~odd]
    most = max(1.0, np.abs(b).max(initial=0)) * max(tolerance, TOLERANCE[want.dtype.name])
    return "" if (np.abs(a - b) <= most).all() else f"{have}, not {want}"
