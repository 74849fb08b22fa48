"""Cells of recurrent networks: one step in time. Unroll them with a loop."""

from __future__ import annotations

from graphc.ir.builder import Builder, Operand, Value
from graphc.ir.op import require
from graphc.ir.registry import composite
from graphc.ops.composites.shaping import split


@composite
def lstm_cell(
    f: Builder, x: Value, h: Value, c: Value, wx: Value, wh: Value, b: Operand | None = None
) -> tuple[Value, Value]:
    """`c' = sigmoid(F) c + sigmoid(I) tanh(G); h' = sigmoid(O) tanh(c')`; returns (h', c')

    I, F, G, O are the quarters of x @ wx + h @ wh + b, in this order. x [n, k], h and c [n, m],
    wx [k, 4m], wh [m, 4m], b [4m]. (Hochreiter, Schmidhuber 1997; Gers et al. 2000)
    """
    gates = _gates(f, x, wx, h, wh, b, 4)
    i, forget, g, o = split(f, gates, 4, axis=-1)
    new = f.sigmoid(forget) * c + f.sigmoid(i) * f.tanh(g)
    return f.sigmoid(o) * f.tanh(new), new


@composite
def gru_cell(
    f: Builder, x: Value, h: Value, wx: Value, wh: Value, bx: Operand | None = None,
    bh: Operand | None = None,
) -> Value:  # fmt: skip
    """`h' = (1 - z) n + z h` with z = sigmoid(Zx + Zh), n = tanh(Nx + r Nh), r = sigmoid(Rx + Rh)

    R, Z, N are the thirds of x @ wx + bx and of h @ wh + bh, in this order. x [n, k], h [n, m],
    wx [k, 3m], wh [m, 3m], bx and bh [3m]. (Cho et al. 2014)
    """
    _check(x, wx, h, wh, 3)
    rx, zx, nx = split(f, f.dense(x, wx, bx), 3, axis=-1)
    rh, zh, nh = split(f, f.dense(h, wh, bh), 3, axis=-1)
    z = f.sigmoid(zx + zh)
    new = f.tanh(nx + f.sigmoid(rx + rh) * nh)
    return (1 - z) * new + z * h


def _gates(
    f: Builder, x: Value, wx: Value, h: Value, wh: Value, b: Operand | None, n: int
) -> Value:
    _check(x, wx, h, wh, n)
    return f.dense(x, wx, b) + f.matmul(h, wh)


def _check(x: Value, wx: Value, h: Value, wh: Value, n: int) -> None:
    width = h.shape[-1] if h.rank else 0
    columns = n * width
    fits = x.rank and wx.shape == (x.shape[-1], columns) and wh.shape == (width, columns)
    text = f"a cell of {width} units: x {x.shape}, wx {wx.shape}, wh {wh.shape}"
    require(bool(fits), text, help=f"wx and wh have {n} columns for every unit")
