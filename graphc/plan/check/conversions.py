"""Local conversions: the same global value before and after, another part of it on each device."""

from __future__ import annotations

from graphc.ir.leaf_tree import most_pieces
from graphc.ir.placement import Mesh, Partial, Replicated, Split
from graphc.ir.types import TensorType
from graphc.lowering.program.program import Buffer, Kernel, Program
from graphc.ops.collective import Conversion, Keep, Mask, Recall
from graphc.ops.settle import Settle
from graphc.plan.check.buffers import alike, grown, is_part


def conversion_problem(x: Kernel, program: Program) -> str | None:
    """Why the kernel of a conversion does not do what its buffers say; None where it does.

    Raises GraphcError for what the op itself refuses.
    """
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
        case Mask() as op:
            op.infer(TensorType(a.shape, a.dtype))  # raises what is wrong with its dim or its fill
            return alike(a, b)
        case Settle(order=order, turns=made):
            return made == mesh.turns and grown(b, a, order.partial_sums(mesh.turns))
        case Keep():
            return grown(a, b, mesh.turns)
        case Recall():
            return grown(b, a, mesh.turns)
        case Conversion(communicates=True) as op:
            return isinstance(op.states[0], Partial) and _grows_forest(op, a, b, mesh)
        case Conversion() as op:
            return _is_axis(mesh, op.axis, op.over) and _converts(op, a, b, mesh)
        case _:
            return False


def _grows_forest(op: Conversion, a: Buffer, b: Buffer, mesh: Mesh) -> bool:
    """Whether b keeps what a device adds up of a sum over leaves."""
    if mesh.leaves is None or mesh.leaves.axes != op.axes or a.dtype.kind == "b":
        return False
    return grown(a, b, most_pieces(mesh.leaves.slots, mesh.turns))


def _converts(op: Conversion, a: Buffer, b: Buffer, mesh: Mesh) -> bool:
    """Whether b is what a conversion makes of a, where nothing is sent."""
    match op.states:
        case Replicated(), Split(dim=dim):
            return is_part(a, b, dim, op.axis)
        case Split(dim=dim), Replicated():
            return is_part(b, a, dim, op.axis)
        case Replicated(), Partial():
            return alike(a, b)
        case Partial(), Replicated():
            several = op.partial_sums(max(mesh.turns, 2)) > 1  # one turn runs what more of them do
            room = grown(a, b, op.partial_sums(mesh.turns)) if several else alike(a, b)
            return a.dtype.kind != "b" and room
        case _:
            return False


def _is_axis(mesh: Mesh, name: str, over: str) -> bool:
    return any(a.name == name and a.over == over for a in mesh.axes)
