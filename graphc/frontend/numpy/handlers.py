"""The register of handlers of NumPy functions, and what to say about functions without one.

A handler is `(f, *args, **options)`: f is the Builder, the rest are the user's arguments, with
graph values in place of traced arrays. It returns values, or plain Python data. Its parameters have
NumPy's names, so that keywords work. `out=` is handled before it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import numpy as np

Handler: TypeAlias = Callable[..., Any]
H = TypeVar("H", bound=Handler)

TABLE: dict[Callable[..., Any], Handler] = {}  # array functions
UFUNCS: dict[np.ufunc, Handler] = {}  # ufuncs, called plainly: (f, *operands)
NAMES: dict[str, Handler] = {}  # all of them by the name after `np.`, whatever NumPy is here
METHODS: dict[str, Handler] = {}  # of ndarray
PROPERTIES: dict[str, Handler] = {}  # attributes of ndarray that make a new array
# Handlers of what writes into its first argument.
WRITING: set[Handler] = set()
VIEWS: set[Handler] = set()  # handlers whose result shares the operand's memory in NumPy
# Handlers that compute with the number of examples at run time, whatever numbers they are given,
COUNTING: set[Handler] = set()
# and those that do if it is a length of an array of the batch.
MEASURING: set[Handler] = set()


def find(name: str) -> Any:
    """The function `np.<name>`, or None if this version of NumPy does not have it."""
    member: Any = np
    for part in name.split("."):
        member = getattr(member, part, None)
    return member


def traces(
    *names: str, methods: tuple[str, ...] = (), view: bool = False, measuring: bool = False
) -> Callable[[H], H]:
    """Register a handler for NumPy functions, by name, and for methods of ndarray.

    view:      whether NumPy's result shares memory with its operand
    measuring: whether the batch size may be among the lengths that it takes or gives
    """

    def enter(handler: H) -> H:
        for name in names:
            NAMES[name] = handler
            if (function := find(name)) is not None:
                TABLE[function] = handler
        METHODS.update(dict.fromkeys(methods, handler))
        if view:
            VIEWS.add(handler)
        if measuring:
            MEASURING.add(handler)
        return handler

    return enter


def traces_ufunc(*names: str, methods: tuple[str, ...] = ()) -> Callable[[H], H]:
    """Register a handler for ufuncs by name; it is called with the operands only."""

    def enter(handler: H) -> H:
        for name in names:
            NAMES[name] = handler
            if (function := find(name)) is not None:
                UFUNCS[function] = handler
        METHODS.update(dict.fromkeys(methods, handler))
        return handler

    return enter


def name_of(function: Callable[..., Any]) -> str:
    """The name by which users call a function: `np.linalg.norm`."""
    module = getattr(function, "__module__", None) or "numpy"
    return f"np{module.removeprefix('numpy')}.{getattr(function, '__name__', function)}"


_SHAPE = "the shape of the result depends on the values: "
_MASK = _SHAPE + "mask with np.where(mask, x, 0) and reduce"
_EIGEN = "there is no op for matrix decompositions: compute it outside of the step"
_PRINT = "output values with graphc.report(name, value)"
_SETS = _SHAPE + "compare with np.isin or ==, and reduce"

ADVICE: dict[str, str] = {
    **dict.fromkeys(("nonzero", "flatnonzero", "argwhere", "compress", "extract"), _MASK),
    **dict.fromkeys(
        ("unique", "unique_all", "unique_counts", "unique_inverse", "unique_values", "union1d",
         "intersect1d", "setdiff1d", "setxor1d", "trim_zeros"), _SETS),
    **dict.fromkeys(
        ("linalg.cholesky", "linalg.det", "linalg.eig", "linalg.eigh", "linalg.eigvals",
         "linalg.eigvalsh", "linalg.inv", "linalg.lstsq", "linalg.pinv", "linalg.qr",
         "linalg.slogdet", "linalg.solve", "linalg.svd", "linalg.svdvals", "linalg.cond",
         "linalg.matrix_rank", "linalg.tensorinv", "linalg.tensorsolve", "roots", "poly"), _EIGEN),
    **dict.fromkeys(("save", "savez", "savez_compressed", "savetxt"), _PRINT),
    "bincount": _SHAPE + "sum np.equal(x[..., None], np.arange(n)) or graphc.nn.one_hot(x, n)",
    "histogram": "count with np.searchsorted and graphc.nn.one_hot",
    "piecewise": "write np.where(condition, a, b) or np.select",
    "apply_along_axis": "write the function for the whole array, with axis=",
    "apply_over_axes": "give the reduction a tuple of axes",
    "insert": "write np.concatenate of the parts",
    "lexsort": "write np.argsort of one combined key",
    "einsum_path": "np.einsum chooses its order itself",
    "linspace": "write start + (stop - start) * np.linspace(0, 1, n)",
    "geomspace": "write np.exp(a + (b - a) * np.linspace(0, 1, n))",
    "logspace": "write 10 ** (a + (b - a) * np.linspace(0, 1, n))",
    "frexp": "write np.log2 and np.floor",
    "i0": "there is no op for Bessel functions",
}  # fmt: skip

_NUMBER = "a traced value has no numbers yet: " + _PRINT
_STRUCTURE = "a traced array has no memory"

REFUSED_METHODS: dict[str, str] = {
    **dict.fromkeys(("item", "tolist", "tobytes", "tofile", "dump", "dumps"), _NUMBER),
    **dict.fromkeys(("itemset", "setfield"), "write x[key] = v"),
    "resize": "write x = np.resize(x, shape)",
    **dict.fromkeys(("nonzero", "compress"), _MASK),
    **dict.fromkeys(
        ("base", "ctypes", "data", "flags", "strides", "view", "byteswap", "getfield",
         "setflags"), _STRUCTURE),
    "flat": "write x.ravel()",
}  # fmt: skip
