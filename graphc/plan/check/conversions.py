"""Local conversions: the same global value before and after, another part of it on each place."""

from __future__ import annotations

from graphc.ir.leaf_tree import most_pieces
from graphc.ir.placement import Mesh
from graphc.lowering.program.program import Buffer, Kernel, Program
from graphc.ops.collective import (
    Accumulate,
    AllReduce,
    Keep,
    Mask,
    Microbatch,
    Recall,
    Reduce,
    ReduceScatter,
    Stack,
    TensorSplit,
    ToPartial,
)  # fmt: skip
from graphc.ops.settle import Settle
from graphc.plan.check.buffers import alike, grown, is_part


def conversion_problem(x: Kernel, program: Program) -> str | None:
    """Why the kernel of a conversion does not do what its buffers say; None where it does."""
    if len(x.operands) != 1:
        return f"it converts one value, not {len(x.operands)}"
    a, b = program.buffers[x.operands[0]], program.buffers[x.result]
    if b.kind in ("view", "constant") or a.root == b.root:
        return "its result has no memory of its own"
    if a.home != b.home:
        return "its result has another owner"
    return None if _fits(x, a, b, program.mesh) else "its buffers hold other shards than it says"


def _fits(x: Kernel, a: Buffer, b: Buffer, mesh: Mesh) -> bool:
    match x.op:
        case Mask(dim=dim):
            return 0 <= dim < len(a.shape) and alike(a, b)
        case TensorSplit(axis=axis, dim=dim):
            return _is_axis(mesh, axis, "space") and is_part(a, b, dim, axis)
        case Microbatch(axis=axis, dim=dim):
            return _is_axis(mesh, axis, "time") and is_part(a, b, dim, axis)
        case Stack(axis=axis, dim=dim):
            return _is_axis(mesh, axis, "time") and is_part(b, a, dim, axis)
        case ToPartial(axis=axis):
            return _is_axis(mesh, axis, "space") and alike(a, b)
        case Accumulate(axis=axis) as op:
            several = op.partial_sums(max(mesh.turns, 2)) > 1  # one turn runs what more of them do
            room = grown(a, b, op.partial_sums(mesh.turns)) if several else alike(a, b)
            return _is_axis(mesh, axis, "time") and a.dtype.kind != "b" and room
        case Settle(order=order, turns=made):
            return made == mesh.turns and grown(b, a, order.partial_sums(mesh.turns))
        case AllReduce() | ReduceScatter() | Reduce() as op:
            leaves = mesh.leaves
            over = leaves is not None and leaves.axes == op.axes and a.dtype.kind != "b"
            return over and grown(a, b, most_pieces(leaves.slots, mesh.turns)) if leaves else False
        case Keep():
            return grown(a, b, mesh.turns)
        case Recall():
            return grown(b, a, mesh.turns)
        case _:
            return False


def _is_axis(mesh: Mesh, name: str, over: str) -> bool:
    return any(a.name == name and a.over == over for a in mesh.axes)
