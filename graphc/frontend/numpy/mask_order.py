"""One value for each entry that a traced mask chooses, in the order of these entries.

How many there are is known at run time only. So the values are looked up: the number of chosen
entries before an entry says which value is its own.
"""

from __future__ import annotations

from typing import Any

from graphc.frontend.numpy.session import plain_shape
from graphc.frontend.operands import value
from graphc.ir.builder import Builder, Value
from graphc.ir.op import require
from graphc.ir.types import I32
from graphc.ops.composites.support import reshaped


def in_mask_order(f: Builder, mask: Any, v: Any, dim: int = 0) -> Value:
    """v [a.., n, b..] as [a.., mask.., b..], n at `dim`: value i for the ith entry that is chosen.

    What stands at the others is unspecified. Raises G0804, and at run time G0506 if the mask does
    not choose n entries.
    """
    mask, v = value(f, mask), value(f, v)
    n = v.shape[dim]
    require(
        n > 0 and mask.type.size > 0,
        "no values are written to the entries of a traced mask",
        code="G0804",
        help="write x[...] = np.where(mask, y, x)",
    )
    plain_shape(mask)
    if v.type.extent(dim) is not None:
        plain_shape(v)
    nth = f.cumsum(f.flatten(f.to_dtype(mask, I32)), 0)
    count = f.slice(nth, dim=0, start=mask.type.size - 1, stop=mask.type.size)
    ids = f.where(f.eq(count, n), f.maximum(nth - 1, 0), n)
    return f.gather(v, reshaped(f, ids, mask.shape), dim=dim)


__all__ = ["in_mask_order"]
