"""The Program: what a backend runs. A few roles, each one SPMD list of instructions.

Neither the number of roles nor their length grows with the devices: a rank finds its part by its
coordinates on the mesh. Buffers are planned: every instruction names the buffers it reads and
writes, and every arena buffer has its place in one block of memory.

A step runs its `body` and then `commit` (after `setup`, once). The body is a line of instructions,
some of which are loops over turns: what does not vary over time, the first loop, what follows it,
the next loop, and so on. Only `commit` writes variables: a failure before it leaves them as they
were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from typing import TypeAlias

from graphc.errors import Span
from graphc.op import Op
from graphc.ops.collective import Conversion
from graphc.placement import Mesh, Placement, Split, chop
from graphc.types import DType, TensorType


@dataclass(frozen=True, slots=True)
class Range:
    """Which entries of a global dim a rank holds at a turn.

    count is the static number of units; extent, where given, names the run-time number of units
    (a short batch has fewer). axes cut the dim, major first, as (name, size). unit entries go
    together.
    """

    count: int
    unit: int = 1
    extent: str = ""
    axes: tuple[tuple[str, int], ...] = ()

    def at(self, coordinates: Mapping[str, int], counts: Mapping[str, int]) -> tuple[int, int]:
        """(offset, length) in entries, for a place on the mesh and the run-time counts."""
        count = counts.get(self.extent, self.count) if self.extent else self.count
        offset, length = chop(count, [(n, coordinates[a]) for a, n in self.axes])
        return offset * self.unit, length * self.unit


@dataclass(frozen=True, slots=True)
class Buffer:
    """A local tensor: padded local shape, dtype and where it lives.

    kind: 'arena' (at `offset` bytes), 'constant' (written once, by `setup`), 'variable' (outlives
    the step), 'view' (`offset` bytes into buffer `base`, which is no view, with `strides` in
    elements). ranges says, per dim, what it holds of the global tensor of shape `shape_global`.
    """

    id: int
    name: str
    shape: tuple[int, ...]
    dtype: DType
    kind: str = "arena"
    offset: int = 0
    base: int = -1
    strides: tuple[int, ...] = ()
    shape_global: tuple[int, ...] = ()
    ranges: tuple[Range, ...] = ()

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.dtype.bytes

    @property
    def root(self) -> int:
        """The buffer whose memory this is."""
        return self.base if self.kind == "view" else self.id


@dataclass(frozen=True, slots=True)
class Feed:
    """Fill `result` with this rank's (and turn's) part of the batch's entry `source`."""

    source: str
    result: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """`result = op(operands)`, the op localized to the padded local shapes.

    A local conversion (tensor_split, to_partial, mask, accumulate, stack, microbatch) is a kernel
    too: the buffers' ranges tell it which entries are meant. A kernel whose result is a view has
    nothing to compute where the view's strides can be used. Where an op says `in_place`, the
    result may lie exactly on one operand. group marks a fused group.
    """

    op: Op
    operands: tuple[int, ...]
    result: int
    node: str
    origin: Span | None = None
    group: int | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Begin a collective: `result = op(operand)` over the mesh axis that the op names."""

    op: Op
    operand: int
    result: int
    token: int
    node: str
    origin: Span | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for the collective that `Start` began with this token."""

    token: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send `operand` to the role `to` (the same coordinates), under `tag`."""

    operand: int
    to: str
    tag: str


@dataclass(frozen=True, slots=True)
class Recv:
    """Receive `result` from the role `source` (the same coordinates), under `tag`."""

    result: int
    source: str
    tag: str


@dataclass(frozen=True, slots=True)
class Loop:
    """Run `body` once for every turn, that is every place on the mesh's time axes."""

    turns: int
    body: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class Write:
    """Copy `operand` into the buffer of a variable (kernels may also write one in place)."""

    operand: int
    variable: int


Instruction: TypeAlias = Feed | Kernel | Start | Wait | Send | Recv | Loop | Write


@dataclass(frozen=True, slots=True)
class Role:
    """One SPMD instruction list. Each rank of the role runs the body, then commit.

    setup: run once, when the program is loaded: it makes the constants
    body:  everything before the first write of a variable; the loops stand in it, one after another
    """

    name: str
    setup: tuple[Instruction, ...] = ()
    body: tuple[Instruction, ...] = ()
    commit: tuple[Instruction, ...] = ()

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The loops, in order."""
        return tuple(x for x in self.body if isinstance(x, Loop))

    @property
    def parts(self) -> tuple[tuple[Instruction, ...], ...]:
        """The parts of a step: straight, loop, straight, ..., straight, commit.

        A loop stands for its body, so that part 2i + 1 is loop i.
        """
        parts: list[list[Instruction]] = [[]]
        for x in self.body:
            if isinstance(x, Loop):
                parts += [list(x.body), []]
            else:
                parts[-1].append(x)
        return (*map(tuple, parts), self.commit)

    @property
    def prologue(self) -> tuple[Instruction, ...]:
        """What comes before the first loop."""
        return self.parts[0]

    @property
    def epilogue(self) -> tuple[Instruction, ...]:
        """What comes after the last loop and writes no variable; () without a loop."""
        return self.parts[-2] if self.loops else ()

    @property
    def instructions(self) -> Iterator[Instruction]:
        """Every instruction once, setup first, without the loops themselves."""
        return chain(self.setup, *self.parts)


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled step: roles, buffers, and how the outside reaches them.

    inputs:    entry of the batch -> its global type with placement
    variables: name -> buffer; variable_types: name -> global type with placement
    outputs:   name -> buffer (replicated over the whole mesh)
    counts:    run-time dims and the static number that they may reach, such as {"batch": 256}
               (empty where the batch must be full)
    arena:     bytes of the arena; a device's peak is arena + constants + its variables
    """

    name: str
    mesh: Mesh
    roles: tuple[Role, ...]
    buffers: tuple[Buffer, ...]
    inputs: dict[str, TensorType]
    variables: dict[str, int]
    variable_types: dict[str, TensorType]
    outputs: dict[str, int]
    counts: dict[str, int]
    arena: int = 0

    @property
    def variable_bytes(self) -> int:
        """Bytes of all variables on one device."""
        return sum(self.buffers[i].bytes for i in self.variables.values())

    @property
    def constant_bytes(self) -> int:
        """Bytes of all constants on one device."""
        return sum(b.bytes for b in self.buffers if b.kind == "constant")

    @property
    def peak_bytes(self) -> int:
        """Bytes that one device needs at most. Known before running."""
        return self.arena + self.constant_bytes + self.variable_bytes

    @property
    def sent_bytes(self) -> int:
        """Bytes that one device sends in a step, as the ring algorithms do (Conversion.traffic)."""
        return round(sum(_sent(self, x) * turns for x, turns in self._starts()))

    def _starts(self) -> Iterator[tuple[Start, int]]:
        """Every collective, and how often a step runs it."""
        for role in self.roles:
            for x in (*role.body, *role.commit):
                inside, turns = (x.body, x.turns) if isinstance(x, Loop) else ((x,), 1)
                yield from ((y, turns) for y in inside if isinstance(y, Start))

    def role(self, name: str) -> Role:
        """The role of that name."""
        return next(role for role in self.roles if role.name == name)


def _sent(program: Program, start: Start) -> float:
    """Bytes that one device sends for a collective."""
    op = start.op
    assert isinstance(op, Conversion), f"%{start.node} begins {op.name}, which is no conversion"
    n = program.mesh.axis(op.axis).size
    parts = n if isinstance(op.states[0], Split) else 1
    return op.traffic(n, program.buffers[start.operand].bytes * parts)


def reads(instruction: Instruction) -> tuple[int, ...]:
    """The buffers that an instruction reads."""
    match instruction:
        case Kernel(operands=operands):
            return operands
        case Start(operand=x) | Send(operand=x) | Write(operand=x):
            return (x,)
        case _:
            return ()


def writes(instruction: Instruction) -> int | None:
    """The buffer that an instruction writes."""
    match instruction:
        case Kernel(result=y) | Start(result=y) | Feed(result=y) | Recv(result=y):
            return y
        case Write(variable=y):
            return y
        case _:
            return None


def ranges_of(t: TensorType, mesh: Mesh) -> tuple[Range, ...]:
    """What a place holds of each dim of a placed tensor."""
    return tuple(_range(t, mesh, dim) for dim in range(t.rank))


def exact_ranges(t: TensorType, mesh: Mesh) -> tuple[Range, ...]:
    """The same for a program that runs on full batches only: every count is the static one."""
    return tuple(replace(r, extent="") for r in ranges_of(t, mesh))


def _range(t: TensorType, mesh: Mesh, dim: int) -> Range:
    extent = t.extent(dim)
    unit = extent.unit if extent else 1
    axes = tuple((a, mesh.axis(a).size) for a in t.placement.splits(dim))
    return Range(t.shape[dim] // unit if unit else 0, unit, extent.name if extent else "", axes)


__all__ = [
    "Buffer",
    "Feed",
    "Instruction",
    "Kernel",
    "Loop",
    "Placement",
    "Program",
    "Range",
    "Recv",
    "Role",
    "Send",
    "Start",
    "Wait",
    "Write",
    "exact_ranges",
    "ranges_of",
    "reads",
    "writes",
]
