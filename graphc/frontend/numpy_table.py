"""The NumPy functions that trace: importing this module enters the handlers of all `numpy_*` files.

A handler's docstring says what the function is over graphc's ops. `spec/numpy.md` lists them.
"""

from __future__ import annotations

from graphc.frontend import (
    numpy_elementwise,
    numpy_join,
    numpy_linear,
    numpy_make,
    numpy_nan,
    numpy_order,
    numpy_reduce,
    numpy_select,
    numpy_shape,
    numpy_slope,
)
from graphc.frontend.numpy_registry import (
    ADVICE,
    METHODS,
    NAMES,
    PROPERTIES,
    REFUSED_METHODS,
    TABLE,
    UFUNCS,
    VIEWS,
    find,
    name_of,
)

HANDLERS = (
    numpy_elementwise, numpy_join, numpy_linear, numpy_make, numpy_nan, numpy_order, numpy_reduce,
    numpy_select, numpy_shape, numpy_slope,
)  # fmt: skip

__all__ = [
    "ADVICE", "HANDLERS", "METHODS", "NAMES", "PROPERTIES", "REFUSED_METHODS", "TABLE", "UFUNCS",
    "VIEWS", "find", "name_of",
]  # fmt: skip
