"""Elementwise functions as GPUs have them give the bits of the native backend's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from backends.cupy.on_cpu import POSSIBLE, run_on_cpu
from backends.native.entries import DTYPES, same, values
from backends.native.harness import run_kernel
from shares import alternate, every

from graphc.ir.types import BF16, BOOL, F32, F64, I32, DType
from graphc.lowering.kernel.code import (
    FUNCTIONS,
    Access,
    Apply,
    Load,
    Nest,
    Parameter,
    Phase,
    Statement,
    Store,
)

pytestmark = pytest.mark.skipif(not POSSIBLE, reason="threads of blocks are played on Linux only")
Array = np.ndarray[Any, np.dtype[Any]]

PREDICATES = {"eq", "ne", "lt", "le", "gt", "ge", "is_finite"}
LOGIC = {"and", "or", "xor", "not"}
UNARY = {
    "abs", "neg", "sign", "floor", "round", "sqrt", "exp", "expm1", "log", "log1p", "sin", "cos", "tanh",
    "logistic", "erf", "is_finite", "not",
}  # fmt: skip
OF_FLOATS = {
    "div", "sqrt", "exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "logistic", "erf", "pow", "arctan2",
    "is_finite", "round", "floor",
}  # fmt: skip
OF_NUMBERS = FUNCTIONS - LOGIC - OF_FLOATS - {"cast", "select"}


def functions_of(dtype: DType) -> list[str]:
    if dtype == BOOL:
        return sorted(LOGIC | {"eq", "ne"})
    return sorted(OF_NUMBERS | OF_FLOATS if dtype.kind == "f" else OF_NUMBERS)


def every_function(dtype: DType, n: int) -> Nest:
    """A map of two operands, with a result for each function."""
    params, code = [Parameter(dtype), Parameter(dtype)], list[Statement]()
    code += [Load(k, Access(k, (1,))) for k in range(2)]
    for k, name in enumerate(functions_of(dtype), 2):
        made = BOOL if name in PREDICATES | LOGIC else dtype
        code.append(Apply(k, name, (0,) if name in UNARY else (0, 1), made))
        code.append(Store(Access(len(params), (1,)), k))
        params.append(Parameter(made, written=True))
    return Nest(tuple(params), (n,), (), (Phase(False, tuple(code)),))


def every_cast(dtype: DType, n: int) -> Nest:
    code = [Load(0, Access(0, (1,)))]
    params = [Parameter(dtype)]
    for k, to in enumerate(DTYPES, 1):
        code += [Apply(k, "cast", (0,), to), Store(Access(k, (1,)), k)]
        params.append(Parameter(to, written=True))
    return Nest(tuple(params), (n,), (), (Phase(False, tuple(code)),))


def compare(
    nest: Nest, given: list[Array], run: Callable[[Nest, list[Array]], Array] = run_on_cpu
) -> None:
    n = nest.rows[0]
    results = [np.zeros(n, p.dtype.numpy) for p in nest.params[len(given) :]]
    mine, wanted = ([x.copy() for x in (*given, *results)] for _ in range(2))
    run(nest, mine)
    run_kernel(nest, wanted)
    names = [x.function for x in nest.phases[0].code if isinstance(x, Apply)]
    for name, x, y in zip(names, mine[len(given) :], wanted[len(given) :], strict=True):
        if same(x, y):
            continue
        wrong = [k for k in range(n) if not same(x[k : k + 1], y[k : k + 1])]
        at = [tuple(g[k] for g in given) for k in wrong[:5]]
        raise AssertionError(f"{name}{at}: {x[wrong[:5]]} not {y[wrong[:5]]}")


@pytest.mark.parametrize(
    "dtype", [I32, *alternate([BF16, *(x for x in DTYPES if x not in (I32, BF16))], 4)], ids=str
)
def test_every_function_and_cast_gives_the_bits_of_the_cpu(dtype: DType) -> None:
    rng, n = np.random.default_rng(1), 500
    x, y = (values(rng, (n,), dtype) for _ in range(2))
    if dtype.kind != "f" and dtype != BOOL:
        y[::7] = 0
    compare(every_function(dtype, n), [x, y])
    compare(every_cast(dtype, n), [x])


@pytest.mark.parametrize("dtype", every(2, [F32, F64]), ids=str)
def test_remainders_are_exact(dtype: DType) -> None:
    """Of any two floats: quotients up to the largest, subnormal numbers, and no numbers."""
    n, rng = 2000, np.random.default_rng(2)
    bits = {F32: np.uint32, F64: np.uint64}[dtype]
    x, y = (
        rng.integers(0, np.iinfo(bits).max, n, bits, endpoint=True).view(dtype.numpy)
        for _ in range(2)
    )
    x[::3], y[1::5] = x[::3].view(bits) >> 12, y[1::5].view(bits) >> 14
    x[:300] = x[300:600].view(bits) & ~bits(0)
    y[:300] = (x[:300].view(bits) + rng.integers(0, 9, 300).astype(bits)).view(dtype.numpy)
    code: list[Statement] = [Load(k, Access(k, (1,))) for k in range(2)]
    for k, name in enumerate(("mod", "floor_div"), 2):
        code += [Apply(k, name, (0, 1), dtype), Store(Access(k, (1,)), k)]
    params = (*[Parameter(dtype)] * 2, *[Parameter(dtype, written=True)] * 2)
    nest = Nest(params, (n,), (), (Phase(False, tuple(code)),))
    with np.errstate(all="ignore"):
        compare(nest, [x, y])
