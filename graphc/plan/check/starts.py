"""Collectives: all devices of a group agree on what they send, and what they get fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from graphc.ir.leaf_tree import most_pieces
from graphc.ir.placement import Home, Mesh, Partial, Replicated, Split
from graphc.lowering.program.program import Buffer, Program, Range, Start
from graphc.ops.collective import Conversion
from graphc.plan.check.buffers import alike, is_cut, is_part, same_ranges


def collectives_are_typed(program: Program) -> Iterator[str]:
    """A collective runs over axes of the mesh, and its buffers hold what it takes and gives."""
    for x in program.instructions:
        if isinstance(x, Start) and (problem := _problem(x, program)):
            yield f"%{x.node} = {x.op.name}: {problem}"


def _problem(x: Start, program: Program) -> str | None:
    op, mesh = x.op, program.mesh
    if not op.communicates:
        return "this is not a collective"
    if not _runs_over(op, mesh):
        return f"it can't run over '{op.axis}' of the mesh"
    a, b = program.buffers[x.operand], program.buffers[x.result]
    if a.kind == "view" or b.kind != "arena" or a.root == b.root:
        return "it has no memory of its own"
    sent = _of_one_leaf(a, op, mesh)
    fits = sent is not None and _fits(sent, b, op)
    return None if fits else "its buffers hold other shards than it says"


def _runs_over(op: Conversion, mesh: Mesh) -> bool:
    """Whether the axes are one of the mesh, over space, or those that deal out leaves."""
    if mesh.leaves is not None and op.axes == mesh.leaves.axes:
        return op.along in (*op.axes[:-1], op.axis) or op.along == op.axes[-1]
    return [a.over for a in mesh.axes if a.name in op.axes] == ["space"] == ["space"] * len(op.axes)


def _of_one_leaf(a: Buffer, op: Conversion, mesh: Mesh) -> Buffer | None:
    """What is sent: a buffer like `a`; of a forest, without its dim in front."""
    in_turns = mesh.leaves is not None and mesh.axis(mesh.leaves.axes[-1]).over == "time"
    if mesh.leaves is None or op.axes != mesh.leaves.axes or not in_turns:
        return a
    room = most_pieces(mesh.leaves.slots, mesh.turns)
    if a.shape[:1] != (room,) or a.ranges[:1] != (Range(room),):
        return None
    return replace(a, shape=a.shape[1:], shape_global=a.shape_global[1:], ranges=a.ranges[1:])


def _fits(a: Buffer, b: Buffer, op: Conversion) -> bool:
    """Whether a collective makes b of a. A value at home is at one coordinate of the axis."""
    match op.states:
        case Partial(), Home(coordinate=k):
            return alike(a, b) and _whole(a, op) and _at_home(b, a, op.along, k)
        case Home(coordinate=k), Replicated():
            return alike(a, b) and _whole(b, op) and _at_home(a, b, op.along, k)
        case Partial(), Replicated():
            fits = alike(a, b)
        case Partial(), Split(dim=d):
            fits = is_part(a, b, d, op.along)
        case Split(dim=d), Replicated():
            fits = is_part(b, a, d, op.along)
        case Split(dim=s), Split(dim=d):
            cut = is_cut(a, s, op.axis) and is_cut(b, d, op.axis)
            whole = not is_cut(a, d, op.axis) and not is_cut(b, s, op.axis)
            fits = cut and whole and same_ranges(a, b, {s: op.axis, d: op.axis})
        case _:
            return False
    return fits and a.home == b.home and _whole(a, op)


def _whole(b: Buffer, op: Conversion) -> bool:
    """Whether every device along the axes has the buffer."""
    return not any(axis in op.axes for axis, _ in b.home)


def _at_home(b: Buffer, elsewhere: Buffer, axis: str, coordinate: int) -> bool:
    """Whether b lies where another buffer does, but for one axis, along which it is at home."""
    return sorted(b.home) == sorted((*elsewhere.home, (axis, coordinate)))
