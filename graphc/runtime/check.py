"""What holds for every well-formed Program; a plan file is checked before anything is run."""

from __future__ import annotations

from collections.abc import Iterator

from graphc.layout import MemoryLayout
from graphc.placement import capacity
from graphc.program import Buffer, Feed, Loop, Program, Role, Start, Wait, reads, writes


def complaints(program: Program) -> Iterator[str]:
    """A sentence for each law that a program breaks."""
    yield from _buffers(program)
    yield from _ends(program)
    for role in program.roles:
        yield from _instructions(program, role)


def _buffers(program: Program) -> Iterator[str]:
    for i, b in enumerate(program.buffers):
        if b.id != i or min(b.shape, default=0) < 0 or len(b.ranges) != len(b.shape):
            yield f"buffer {i} ({b.name}) is not well-formed"
        elif any(not _fits(b, dim) for dim in range(len(b.shape))):
            yield f"buffer {i} ({b.name}) does not hold what its ranges say"
        elif any(not _is_place(program, axis, index) for axis, index in b.home):
            yield f"buffer {i} ({b.name}) is at home at a place that the mesh does not have"
        elif b.kind == "arena" and not 0 <= b.offset <= program.arena - b.bytes:
            yield f"buffer {i} ({b.name}) lies outside the arena"
        elif b.kind == "view" and not _inside(b, program):
            yield f"buffer {i} ({b.name}) lies outside its base"
        elif b.kind not in ("arena", "view", "constant", "variable"):
            yield f"buffer {i} ({b.name}) is of no known kind"


def _is_place(program: Program, axis: str, index: int) -> bool:
    return any(a.name == axis and 0 <= index < a.size for a in program.mesh.space)


def _fits(b: Buffer, dim: int) -> bool:
    r = b.ranges[dim]
    if r.count < 0 or r.unit < 1 or any(n < 1 for _, n in r.axes):
        return False
    if len(r.widths) not in (0, len(r.axes)) or min(r.widths, default=0) < 0:
        return False
    return capacity(r.count, (n for _, n in r.axes), r.widths) * r.unit <= b.shape[dim]


def _inside(b: Buffer, program: Program) -> bool:
    if not 0 <= b.base < len(program.buffers) or len(b.strides) != len(b.shape):
        return False
    base = program.buffers[b.base]
    if base.kind == "view" or base.dtype != b.dtype or b.offset % b.dtype.bytes:
        return False
    reach = MemoryLayout(b.shape, b.strides, b.offset // b.dtype.bytes).reach
    return b.offset >= 0 and min(b.strides, default=0) >= 0 and reach * b.dtype.bytes <= base.bytes


def _ends(program: Program) -> Iterator[str]:
    known = len(program.buffers)
    if len({a.name for a in program.mesh.axes}) != len(program.mesh.axes):
        yield "the mesh has two axes of one name"
    if any(a.size < 1 for a in program.mesh.axes):
        yield "the mesh has an axis without places"
    for name, b in program.variables.items():
        if not 0 <= b < known or program.buffers[b].kind != "variable":
            yield f"variable '{name}' has no buffer"
    if set(program.variables) != set(program.variable_types):
        yield "variables and their types differ"
    for name, b in program.outputs.items():
        if not 0 <= b < known:
            yield f"output '{name}' has no buffer"


def _instructions(program: Program, role: Role) -> Iterator[str]:
    known = range(len(program.buffers))
    for loop in role.loops:
        if loop.turns != program.mesh.turns:
            yield f"a loop has {loop.turns} turns, the mesh {program.mesh.turns}"
    started: set[int] = set()
    for part in (role.setup, *role.parts):
        for x in part:
            made = writes(x)
            if any(b not in known for b in (*reads(x), *(() if made is None else (made,)))):
                yield f"{type(x).__name__} names a buffer that is not there"
            match x:
                case Loop():
                    yield "a loop stands inside a part"
                case Start(token=token):
                    started.add(token)
                case Wait(token=token) if token not in started:
                    yield f"a wait for collective {token}, which was not begun"
                case Wait(token=token):
                    started.discard(token)
                case Feed(source=source) if source not in program.inputs:
                    yield f"a feed of '{source}', which is no input"
        if started:
            yield "a collective is begun in a part that does not wait for it"
            started.clear()
