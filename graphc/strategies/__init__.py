"""Strategies: a few lines of data that say how a step's tensors lie on a mesh.

A strategy is a frozen record; `a * b` joins meshes. What it comes to is a `MeshLayout`, and that is
all the compiler ever sees of it: no pass knows a strategy's name.
"""

from graphc.strategies.base import (
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
)
from graphc.strategies.kinds import (
    ELSEWHERE,
    STRATEGIES,
    Accumulate,
    CentralStorage,
    Diloco,
    LocalSgd,
    Mirrored,
    ParameterServer,
    Reproducible,
    TensorSplit,
    Zero,
)
from graphc.strategies.text import make_strategy, parse_strategy, strategy_of

__all__ = [
    "ELSEWHERE",
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
    "OneDevice",
    "ParameterServer",
    "Periodic",
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
    "parse_strategy",
    "strategy_of",
]
