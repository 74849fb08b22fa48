"""Products of half precision whose sums stay in f32: the type rule, and every way to compute them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphc.autodiff.reverse_mode import gradients
from graphc.ir.builder import Builder
from graphc.ir.types import BF16, F16, F32, F64, DType, TensorType, parse_types
from graphc.lowering.program.program import Program
from graphc.lowering.schedule.schedule import schedule
from graphc.ops.contract import Einsum
from graphc.ops.source import Input
from graphc.runtime.backends.plugins import backend
from graphc.support.errors import GraphcError
from graphc.testing.running import run
from graphc.text import parse_ir, print_ir

Array = np.ndarray[Any, np.dtype[Any]]
SHAPES = [
    ("bk,kn->bn", (9, 70), (70, 40)), ("ahqd,ahkd->ahqk", (2, 3, 5, 7), (2, 3, 6, 7)),
    ("kb,nk->nb", (33, 8), (11, 33)), ("bpgk,kg->bpg", (2, 5, 16, 9), (9, 16)),
    ("bk,k->b", (4, 20), (20,)),
]  # fmt: skip


def operands(a: tuple[int, ...], b: tuple[int, ...], dtype: DType) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {k: rng.standard_normal(s).astype(dtype.numpy) for k, s in (("x", a), ("y", b))}


def program(op: Einsum, given: dict[str, Array], dtype: DType) -> Program:
    f = Builder("product")
    read = [f.add(Input(k), type=TensorType(v.shape, dtype), name=k) for k, v in given.items()]
    f.outputs["z"] = f.add(op, read).name
    return schedule(f.build(), exact=True)


CASES = [(*shape, BF16, False) for shape in SHAPES] + [(*SHAPES[0], BF16, True)]
OTHERS = [(*shape, F16, False) for shape in SHAPES] + [(*SHAPES[1], F16, True)]


@pytest.mark.parametrize(
    ("spec", "a", "b", "dtype", "cut"),
    [
        CASES[0],
        *(pytest.param(*x, marks=pytest.mark.ci) for x in CASES[1::2]),
        *(pytest.param(*x, marks=pytest.mark.slow) for x in (*CASES[2::2], *OTHERS)),
    ],
)
def test_the_sum_is_not_rounded(
    spec: str, a: tuple[int, ...], b: tuple[int, ...], dtype: DType, cut: bool
) -> None:
    given = operands(a, b, dtype)
    made = program(Einsum(spec, (("k", 4),) if cut else (), F32), given, dtype)
    want = np.einsum(spec, *(v.astype(np.float64) for v in given.values()))
    for name in ("reference", "numpy"):
        found = run(made, backend(name), given)["z"]
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("types", "dtype", "good"),
    [
        ("bf16[2,3], bf16[3,4]", F32, True), ("f16[2,3], f16[3,4]", F32, True),
        ("f32[2,3], f32[3,4]", F32, True), ("f32[2,3], f32[3,4]", F64, False),
        ("bf16[2,3], bf16[3,4]", F16, False), ("i32[2,3], i32[3,4]", F32, False),
    ],
)  # fmt: skip
def test_only_sums_of_half_precision_are_wider(types: str, dtype: DType, good: bool) -> None:
    op = Einsum("bk,kn->bn", dtype=dtype)
    if good:
        assert op.infer(*parse_types(types)).dtype == dtype
        return
    with pytest.raises(GraphcError, match="can't give") as caught:
        op.infer(*parse_types(types))
    assert caught.value.code == "G0202"


def test_gradients_have_the_dtype_of_the_operands() -> None:
    f = Builder("product")
    x, y = (
        f.add(Input(k), type=TensorType(s, BF16), name=k) for k, s in (("x", (2, 3)), ("y", (3, 4)))
    )
    loss = f.sum(f.add(Einsum("bk,kn->bn", dtype=F32), (x, y)))
    found = gradients(f, loss, ["x", "y"])
    assert [g.type for g in found.values() if g is not None] == [x.type, y.type]


def test_the_dtype_prints_and_reads_back() -> None:
    f = Builder("product")
    x = f.add(Input("x"), type=TensorType((2, 2), BF16), name="x")
    f.outputs["z"] = f.add(Einsum("bk,kn->bn", dtype=F32), (x, x)).name
    text = print_ir(f.build())
    assert '{spec="bk,kn->bn", dtype=f32}' in text and print_ir(parse_ir(text)) == text
