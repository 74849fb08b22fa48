"""The ops: primitives, one definition each, and the composites that are written over them.

Importing this package registers everything; `COMPOSITES` maps a composite's name to its function
`(f, *operands, **options) -> Value`, where f is a `graphc.builder.Builder`.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphc.op import Op
from graphc.ops import (
    binary,
    collective,
    comparison,
    composites,
    contract,
    elementwise,
    indexing,
    init,
    loss_scale,
    optim,
    optimizers,
    ordering,
    reduce,
    replicas,
    reshape,
    rows,
    schedules,
    shape,
    slicing,
    source,
    structure,
    unary,
    windows,
)
from graphc.ops.registry import COMPOSITES, composite
from graphc.types import Type


def infer_special(op: Op, types: Sequence[Type]) -> Type | None:
    """The result type of an op on tuples or sparse rows; None for an op on tensors."""
    return op.infer_structure(types) if isinstance(op, structure.Structural) else None


__all__ = [
    "COMPOSITES", "binary", "collective", "comparison", "composite", "composites", "contract",
    "elementwise", "indexing", "infer_special", "init", "loss_scale", "optim", "optimizers",
    "ordering", "reduce", "replicas", "reshape", "rows", "schedules", "shape", "slicing", "source",
    "structure", "unary", "windows",
]  # fmt: skip
