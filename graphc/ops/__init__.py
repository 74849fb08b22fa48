"""The ops: primitives, with one definition each, and the composites built from them.

Importing this package registers everything; `COMPOSITES` maps a composite's name to its function
`(f, *operands, **options) -> Value`, where f is a `graphc.ir.builder.Builder`.
"""

from __future__ import annotations

from graphc.ir.registry import COMPOSITES, composite
from graphc.ops import (
    binary,
    collective,
    comparison,
    composites,
    contract,
    custom_op,
    derivatives,
    elementwise,
    indexing,
    initializers,
    optimizers,
    ordering,
    reduce,
    replicas,
    reshape,
    rows,
    shape,
    slicing,
    source,
    unary,
    windows,
)

__all__ = [
    "COMPOSITES", "binary", "collective", "comparison", "composite", "composites", "contract",
    "custom_op", "derivatives", "elementwise", "indexing", "initializers", "optimizers",
    "ordering", "reduce", "replicas", "reshape", "rows", "shape", "slicing", "source",
    "unary", "windows",
]  # fmt: skip
