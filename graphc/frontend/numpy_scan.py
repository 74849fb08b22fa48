"""Running results of an associative function along a dim."""

from __future__ import annotations

from collections.abc import Callable

from graphc.graph import Builder, Value


def scan(f: Builder, function: Callable[[Value, Value], Value], x: Value, axis: int) -> Value:
    """`y[i] = x[0] . x[1] . ... . x[i]` along `axis`, in log2(n) steps (Hillis, Steele 1986)."""
    dim = axis + x.rank if axis < 0 else axis
    step, n = 1, x.shape[dim] if 0 <= dim < x.rank else 0
    f.flip(x, axis) if not 0 <= dim < x.rank else None  # raises G0205
    while step < n:
        kept = f.slice(x, dim=dim, start=0, stop=step)
        left = f.slice(x, dim=dim, start=0, stop=n - step)
        right = f.slice(x, dim=dim, start=step, stop=n)
        x = f.concat(kept, function(left, right), axis=dim)
        step *= 2
    return x
