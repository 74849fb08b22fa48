"""The bytes that a device sends for a conversion over space, with ring algorithms."""

from __future__ import annotations

from math import prod

from graphc.ir.leaf_tree import most_sent
from graphc.ir.placement import Mesh, R, Split
from graphc.ops.collective import Conversion


def sent(op: Conversion, size: float, shape: tuple[int, ...], mesh: Mesh) -> float:
    """Bytes that a device sends for a conversion of a value that takes `size` bytes on it.

    A sum over leaves begins with a forest, whose first dim counts its pieces.
    """
    axes = [a for a in map(mesh.axis, op.axes) if a.over == "space"]
    n = prod(a.size for a in axes)
    if mesh.leaves is not None and len(axes) < len(op.axes):
        return _over_leaves(op, n, size / shape[0], mesh)
    return op.traffic(n, size * (n if isinstance(op.states[0], Split) else 1))


def _over_leaves(op: Conversion, n: int, size: float, mesh: Mesh) -> float:
    """Every entry of the sum is added on one device, to which n - 1 others send their pieces; the
    result is then sent to the other devices that need it: to none, if all entries are split."""
    assert mesh.leaves is not None
    pieces = most_sent(mesh.leaves.slots, mesh.turns)
    copies = prod(mesh.axis(a).size for a in op.axes[:-1] if op.target(a) == R)
    return (pieces * (n - 1) + copies - 1) / n * size
