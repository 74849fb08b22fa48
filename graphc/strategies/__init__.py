"""Strategies describe how a step is distributed over a mesh of devices and microbatches.

A strategy is a frozen record; `a * b` combines two. The compiler only sees the `MeshLayout` that a
strategy gives: the mesh, and the placement of inputs and variables. No pass checks which strategy
it was.
"""

from graphc.strategies.kinds import (
    STRATEGIES,
    Accumulate,
    CentralStorage,
    Diloco,
    LocalSgd,
    Mirrored,
    MultiWorkerMirrored,
    ParameterServer,
    Precision,
    Reproducible,
    TensorSplit,
    Zero,
)
from graphc.strategies.strategy import (
    NO_CUT,
    Asynchronous,
    Balanced,
    Grid,
    Longest,
    MeshLayout,
    OneDevice,
    Periodic,
    Product,
    Rule,
    Strategy,
    Wish,
    layout_of,
    named_parts,
    on_one_device,
)
from graphc.strategies.text import make_strategy, parse_strategy, strategy_of

__all__ = [
    "NO_CUT",
    "STRATEGIES",
    "Accumulate",
    "Asynchronous",
    "Balanced",
    "CentralStorage",
    "Diloco",
    "Grid",
    "LocalSgd",
    "Longest",
    "MeshLayout",
    "Mirrored",
    "MultiWorkerMirrored",
    "OneDevice",
    "ParameterServer",
    "Periodic",
    "Precision",
    "Product",
    "Reproducible",
    "Rule",
    "Strategy",
    "TensorSplit",
    "Wish",
    "Zero",
    "layout_of",
    "make_strategy",
    "named_parts",
    "on_one_device",
    "parse_strategy",
    "strategy_of",
]
