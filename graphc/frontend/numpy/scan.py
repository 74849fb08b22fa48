"""Running results of an associative function along a dim."""

from __future__ import annotations

from collections.abc import Callable

from graphc.ir.builder import Builder, Value
from graphc.ops.composites.support import dim_of


def scan(f: Builder, function: Callable[[Value, Value], Value], x: Value, axis: int) -> Value:
    """`y[i] = x[0] . x[1] . ... . x[i]` along `axis`, in log2(n) steps (Hillis, Steele 1986)."""
    dim = dim_of("accumulate", axis, x.rank)
    step, n = 1, x.shape[dim]
    while step < n:
        kept = f.slice(x, dim=dim, start=0, stop=step)
        left = f.slice(x, dim=dim, start=0, stop=n - step)
        right = f.slice(x, dim=dim, start=step, stop=n)
        x = f.concat(kept, function(left, right), axis=dim)
        step *= 2
    return x
