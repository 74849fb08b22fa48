"""Lowering: from a program to calls of kernels, and instructions that stay with the host.

    instructions ─nodes─► nodes ─fuse─► groups ─build─► kernels ─blocks─► kernels ─memory─► calls

What a loop nest cannot do stays with the host: collectives, feeding, conversions that depend on the
number of examples, and ops without a nest. Between two of these, everything is one native region.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from graphc.lowering.fusion.build import Built, build
from graphc.lowering.fusion.emit import Literals, Writer
from graphc.lowering.fusion.fuse import Fusion, Group
from graphc.lowering.fusion.rematerialize import readers, rematerialize
from graphc.lowering.fusion.spill import spilled
from graphc.lowering.kernel.code import BufferSpan, KernelCall, Pointer
from graphc.lowering.kernel.lowered import Home, Host, Line, Lowered, Memory, Native, Turn, needed
from graphc.lowering.memory.index_checks import Checked, cut
from graphc.lowering.memory.offsets import offsets
from graphc.lowering.memory.regions import Item, Region, timeline_of
from graphc.lowering.nodes.joins import insides
from graphc.lowering.nodes.nodes import LoopNode, Version, alive, is_checked, name_of
from graphc.lowering.nodes.peers import Peers, size_of_sum
from graphc.lowering.nodes.translate import nodes_of, starts_from_nothing
from graphc.lowering.nodes.transposed_copies import with_transposed_copies
from graphc.lowering.nodes.values import ValueTable, literals_of
from graphc.lowering.nodes.views import box, moves_dims
from graphc.lowering.program.program import (
    Buffer,
    Feed,
    Instruction,
    Kernel,
    Program,
    Start,
    Wait,
    reads,
    writes,
)
from graphc.lowering.tiling.tiled_kernels import in_blocks
from graphc.ops.collective import Accumulate
from graphc.ops.rows import RowUpdate
from graphc.ops.source import Iota


def lower(
    program: Program, shared_variables: frozenset[str] | None = None, apart: bool = False
) -> Lowered:
    """The native form of a program.

    shared_variables: of devices that reach each other's memory, the variables that they have once;
    None of devices that do not
    apart: whether each buffer has memory of its own, but for what other devices reach
    """
    return _Lowering(program, shared_variables, apart).lowered()


def written_apart(program: Program) -> frozenset[str]:
    """The variables that no device can write a part of: the host writes them, or rows are added."""
    lowering = _Lowering(program, None)
    names = {b: name for name, b in program.variables.items()}
    found = set()
    for x in lowering.program.instructions:
        made = writes(x)
        name = names.get(program.buffers[made].root) if made is not None else None
        by_rows = isinstance(x, Kernel) and isinstance(x.op, RowUpdate)
        if name and (by_rows or lowering._stays(x) or nodes_of(lowering.values, x) is None):
            found.add(name)
    return frozenset(found)


def _accumulates(x: Instruction) -> bool:
    return isinstance(x, Kernel) and isinstance(x.op, Accumulate)


class _Lowering:
    def __init__(
        self, program: Program, shared_variables: frozenset[str] | None, apart: bool = False
    ) -> None:
        self.program, self.apart = program, apart
        self.shared_variables = {program.variables[name] for name in shared_variables or ()}
        literals = literals_of(self.program.setup, program.buffers)
        self.values = ValueTable(
            list(program.buffers), literals, exact=program.mesh.leaves is not None
        )
        self.literals: Literals = literals
        self.values.whole = self._whole()
        self.values.boxes = self._boxes()
        self.values.once = self._once()
        self.values.indices = self._indices()
        every = tuple(self.program.instructions)
        self.values.insides = insides(every, program.buffers, self.values.whole)
        self.checks: list[Kernel] = []
        self.peers = Peers()
        for x in self.program.instructions if shared_variables is not None else ():
            if isinstance(x, Start) and (size := size_of_sum(program, x)):
                self.peers.add(self.values, x, size)

    def _whole(self) -> frozenset[int]:
        """Buffers that others than nodes read, or views that only hold of memory."""
        every = self.program.buffers
        whole = {every[b].root for b in self.program.outputs.values()}
        whole |= self._across_dims()
        values = ValueTable(list(every), self.literals, self.values.exact, whole=frozenset(whole))
        for x in self.program.instructions:
            if self._stays(x) or nodes_of(values, x) is None:
                whole |= self._of_host(x)
        return frozenset(whole)

    def _across_dims(self) -> set[int]:
        """Buffers of which a view goes on from one dim into the next: it holds of memory only."""
        every = self.program.buffers
        views = (b for b in every if b.kind == "view")
        return {b.base for b in views if not moves_dims(b, every[b.base])}

    def _boxes(self) -> dict[int, list[tuple[int, int]]]:
        """What is read of each buffer that is read by views only, and not by the host."""
        every = self.program.buffers
        seen = (x for x in self.program.instructions if not self._is_view(x))
        used = {b for x in seen for b in reads(x)}
        found: dict[int, list[tuple[int, int]]] = {}
        for b in (every[i] for i in used if every[i].kind == "view" and 0 not in every[i].shape):
            base = every[b.base]
            if base.id in used or base.id in self.values.whole or not base.shape:
                continue
            mine = box(b, base)
            old = found.get(base.id, mine)
            found[base.id] = [
                (min(p[0], q[0]), max(p[1], q[1])) for p, q in zip(mine, old, strict=True)
            ]
        return found

    def _once(self) -> frozenset[int]:
        """Buffers that one instruction reads, once, and that are no output."""
        every, outputs = self.program.buffers, self.program.outputs.values()
        readers = (x for x in self.program.instructions if not self._is_view(x))
        count = Counter(every[b].root for x in readers for b in reads(x))
        count.update(every[b].root for b in (*outputs, *outputs))
        return frozenset(b for b, n in count.items() if n == 1)

    def _indices(self) -> dict[int, Kernel]:
        """Constants that are made where they are read, so that they need no memory."""
        made = (x for x in self.program.setup if isinstance(x, Kernel) and isinstance(x.op, Iota))
        loaded = {self.buffers[b].root for x in self.program.setup for b in reads(x)}
        loaded |= self._across_dims()
        return {x.result: x for x in made if not self._stays(x) and x.result not in loaded}

    def _is_view(self, x: Instruction) -> bool:
        made = writes(x)
        return made is not None and self.program.buffers[made].kind == "view"

    @property
    def buffers(self) -> list[Buffer]:
        return self.values.buffers

    def lowered(self) -> Lowered:
        *parts, last, commit = self.program.parts
        found = [self._items(part, loop=i % 2 == 1) for i, part in enumerate(parts)]
        before, tail = self._items(last), Region()
        if before and isinstance(before[-1], Region) and not before[-1].home:
            tail = before.pop()  # type: ignore[assignment]
        joined = self._items(commit, begun=tail)
        found += [before, joined]
        shared = self._shared(found)
        for item in (x for part in found for x in part if isinstance(x, Region)):
            self._build(item, shared)
        earlier = [x for part in found[:-1] for x in part if isinstance(x, Region)]
        checked, found[-1] = self._checked_first(found[-1], earlier, shared)
        found[-2] = [*found[-2], *checked]
        for item in (x for part in found for x in part if isinstance(x, Region)):
            exact, homes = self.values.exact, self.peers.homes
            item.built = in_blocks(item.built, self.buffers, shared, exact, homes)
        return self._placed(found)

    def _items(
        self, part: Sequence[Instruction], loop: bool = False, begun: Region | None = None
    ) -> list[Item]:
        """The regions and host instructions of a part."""
        kept = loop and any(map(_accumulates, part))
        if not kept:
            found = list(self._variant(part, "any", begun or Region()))
            if loop:
                self.values.forget_links()
            return found
        first = list(self._variant(part, "first", Region()))
        self.values.forget_links()
        self.values.later_turn = True
        later_turn = list(self._variant(part, "later", Region()))
        self.values.forget_links()
        self.values.later_turn = False
        pairs = zip(first, later_turn, strict=True)
        return [x for a, b in pairs for x in ((a,) if isinstance(a, Host) else (a, b))]

    def _variant(self, part: Sequence[Instruction], turn: Turn, now: Region) -> Iterator[Item]:
        now.turn = turn
        yield from (Host(x) for x in part if starts_from_nothing(x))
        for x in part:
            if starts_from_nothing(x) or self._is_begun(x):
                continue
            sum = self.peers.sums.get(x.token) if isinstance(x, Wait) else None
            home = self.values.home = self._home(x)
            nodes = None if self._stays(x) else nodes_of(self.values, sum or x)
            if nodes is not None:
                if home != now.home and now.nodes:
                    yield now
                    now = Region(turn=turn)
                now.home = home
                now.nodes += nodes
                continue
            if now.nodes:
                yield now
            now = Region(turn=turn)
            made = writes(x)
            if made is not None:
                self.values.wrote(self.buffers[made].root)
            yield Host(x)
        if now.nodes:
            yield now

    def _is_begun(self, x: Instruction) -> bool:
        """Whether an instruction begins a sum that is made where it is waited for."""
        return isinstance(x, Start) and x.token in self.peers.sums

    def _stays(self, x: Instruction) -> bool:
        """Whether an instruction depends on the coordinate that runs it."""
        if not isinstance(x, Kernel) or x.op.positioned is None:
            return False
        slot = x.op.positioned
        ranges = self.buffers[x.result if slot < 0 else x.operands[slot]].ranges
        dims = x.op.positioned_dims
        counting = ranges if dims is None else [ranges[d] for d in dims]
        return any(r.axes or r.extent for r in counting)

    def _home(self, x: Instruction) -> Home:
        """The coordinates that run an instruction: those that own its result."""
        made = writes(x)
        found = {h for b in (reads(x) if made is None else (made,)) for h in self.buffers[b].home}
        return tuple(sorted(found))

    # -- kernels ----------------------------------------------------------------------------------

    def _shared(self, parts: Sequence[Sequence[Item]]) -> set[int]:
        """Buffers that must be in memory after the region that writes them."""
        program = self.program
        shared = {*program.outputs.values(), *program.variables.values()}
        shared = {self.buffers[b].root for b in shared} | set(self.peers.homes.values())
        seen: dict[int, int] = {}
        number = 0
        for item in (x for part in parts for x in part):
            # A first turn and a later one are two forms of one region: no step runs both of them.
            number += isinstance(item, Host) or item.turn != "later"
            for b in self._touched(item):
                if isinstance(item, Host) or seen.setdefault(b, number) != number:
                    shared.add(b)
        regions = (i for part in parts for i in part if isinstance(i, Region))
        nodes = (n for s in regions if s.turn != "any" for n in s.nodes)
        return shared | {n.result.buffer for n in nodes if _accumulates(n.instruction)}

    def _touched(self, item: Item) -> set[int]:
        if isinstance(item, Host):
            return self._of_host(item.instruction)
        read = {self.peers.home(r.value.buffer) for n in item.nodes for r in n.reads}
        return read | {n.result.buffer for n in item.nodes}

    def _of_host(self, x: Instruction) -> set[int]:
        made = writes(x)
        every = reads(x) if made is None else (*reads(x), made)
        return {self.buffers[b].root for b in every}

    def _build(self, region: Region, shared: set[int]) -> None:
        region.nodes = with_transposed_copies(self.values, alive(region.nodes, shared))
        fusion = Fusion(region.nodes, self.values.exact, self.peers.homes)
        rematerialize(fusion, shared)
        region.groups, region.order = fusion.ordered(), fusion.order
        stored = {n.result for n in region.nodes if n.result.buffer in shared}
        stored |= set(readers(region.nodes, region.groups))
        pairs: list[tuple[Group, tuple[Built, str]]] = []
        for group in region.groups:
            name = ", ".join(dict.fromkeys(name_of(region.nodes[i]) for i in group.nodes))
            for part in self._apart(region.nodes, group, stored):
                writer = self._writer(region.nodes, group, part)
                writer.stored |= spilled(writer)
                pairs.append((group, (build(writer, self.values.exact), name)))
        kept = [(g, b) for g, b in pairs if any(p.written for p in b[0].kernel.params)]
        region.groups, region.built = [g for g, _ in kept], [b for _, b in kept]

    def _apart(
        self, nodes: Sequence[LoopNode], group: Group, stored: set[Version]
    ) -> list[set[Version]]:
        """What one kernel of a group stores: of a device's own memory, or of what all share.

        What is shared is made by one device, so that the others would not have the rest.
        """
        made = {v for i in group.nodes if (v := nodes[i].result) in stored}
        shared_variables = {v for v in made if v.buffer in self.shared_variables}
        return (
            [made]
            if not shared_variables or shared_variables == made
            else [made - shared_variables, shared_variables]
        )

    def _writer(self, nodes: Sequence[LoopNode], group: Group, stored: set[Version]) -> Writer:
        read = {r.value for i in group.nodes for r in nodes[i].reads}
        results = (nodes[i].result for i in group.nodes)
        in_place = frozenset(b for b, v in results if Version(b, v - 1) in read)
        return Writer(group, nodes, stored, self.literals, self._check, in_place)

    def _check(self, instruction: Instruction) -> int:
        assert isinstance(instruction, Kernel)
        self.checks.append(instruction)
        return len(self.checks) - 1

    def _checked_first(
        self, part: list[Item], earlier: Sequence[Region], shared: set[int]
    ) -> tuple[list[Item], list[Item]]:
        """What of the last part must have run before the first variable is written."""
        at = next((i for i, x in enumerate(part) if isinstance(x, Region)), len(part))
        if at == len(part):
            return [], part
        region, rest = part[at], part[at + 1 :]
        assert isinstance(region, Region)
        known = Checked()
        for other in earlier:
            known.add(other.nodes, other.home)
        nodes = known.known(region.nodes, region.home)
        if nodes != list(region.nodes):  # a late check that is none would hold all updates up
            region = replace(region, nodes=nodes)
            self._build(region, shared)
        first, second = self._cut(region) or self._cut_by_nodes(region, shared)
        return ([*part[:at], first], [second, *rest]) if first.built else ([], part)

    def _cut(self, region: Region) -> tuple[Region, Region] | None:
        """The kernels that checks need, and the others; None if one of the first writes a
        variable."""
        checked = (
            g.number for g in region.groups if any(is_checked(region.nodes[i]) for i in g.nodes)
        )
        needed = region.order.all_before(checked)
        pairs = list(zip(region.groups, region.built, strict=True))
        early = [(g, b) for g, b in pairs if g.number in needed]
        late = [(g, b) for g, b in pairs if g.number not in needed]
        if any(self._writes_variable(region.nodes, g) for g, _ in early):
            return None
        first, second = (
            replace(region, groups=[g for g, _ in x], built=[b for _, b in x])
            for x in (early, late)
        )
        return first, second

    def _cut_by_nodes(self, region: Region, shared: set[int]) -> tuple[Region, Region]:
        """The region cut before it is fused."""
        early, late = cut(region.nodes, self.peers.homes)
        variables = [n for n in early if self.buffers[n.result.buffer].kind == "variable"]
        assert not variables, f"{variables[0]} is written before an index is checked"
        made = {n.result.buffer for n in early}
        shared |= made & {self.peers.home(r.value.buffer) for n in late for r in n.reads}
        first, second = replace(region, nodes=early), replace(region, nodes=late)
        for part in (first, second):
            self._build(part, shared)
        return first, second

    def _writes_variable(self, nodes: Sequence[LoopNode], group: Group) -> bool:
        return any(self.buffers[nodes[i].result.buffer].kind == "variable" for i in group.nodes)

    # -- memory -----------------------------------------------------------------------------------

    def _placed(self, parts: Sequence[Sequence[Item]]) -> Lowered:
        outputs = {self.buffers[b].root for b in self.program.outputs.values()}
        fed = {x.result for x in self.program.instructions if isinstance(x, Feed)}
        timeline = timeline_of(parts, self.peers.home, self._of_host)
        found, size = offsets(timeline, self.buffers, outputs, fed)
        memories = [Memory("arena", -1, size)]
        pointer_of = {b: Pointer(0, offset) for b, offset in found.items()}
        if self.apart:
            self._place_apart(pointer_of, memories)
        unused = self.values.indices.keys() - outputs - set().union(*timeline.touched)
        for b in self.buffers:
            if 0 in b.shape and b.kind == "arena":
                pointer_of[b.id] = Pointer(0)  # nothing lies there
            if b.id in fed or (b.kind in ("constant", "variable") and b.id not in unused):
                kind = "feed" if b.id in fed else b.kind
                kind = "shared" if b.id in self.shared_variables else kind
                pointer_of[b.id] = Pointer(len(memories))
                memories.append(Memory(kind, b.id, b.bytes))  # type: ignore[arg-type]
        self._place_peers(pointer_of, memories)
        lines = tuple(tuple(self._line(x, pointer_of) for x in part) for part in parts)
        setup = needed(self.program.setup, pointer_of)
        return Lowered(tuple(memories), pointer_of, setup, lines, size, tuple(self.checks))

    def _place_apart(self, pointer_of: dict[int, Pointer], memories: list[Memory]) -> None:
        """What no other device reaches lies alone."""
        for root in sorted(pointer_of.keys() - set(self.peers.homes.values())):
            pointer_of[root] = Pointer(len(memories))
            memories.append(Memory("own", root, self.buffers[root].bytes))

    def _place_peers(self, pointer_of: dict[int, Pointer], memories: list[Memory]) -> None:
        """Other devices' arenas are laid out as this one's."""
        known: dict[tuple[tuple[str, ...], int], int] = {}
        for b, peer in self.peers.found.items():
            at = known.setdefault((peer.axes, peer.position), len(memories))
            if at == len(memories):
                memories.append(Memory("peer", axes=peer.axes, position=peer.position))
            if peer.root in pointer_of:
                pointer_of[b] = Pointer(at, pointer_of[peer.root].offset)

    def _line(self, item: Item, pointer_of: dict[int, Pointer]) -> Line:
        if isinstance(item, Host):
            return item
        calls = tuple(
            KernelCall(b.kernel, b.pointers(pointer_of), name, self._spans(b, pointer_of))
            for b, name in item.built
        )
        return Native(calls, item.turn, item.home)

    def _spans(self, built: Built, pointer_of: dict[int, Pointer]) -> tuple[BufferSpan, ...]:
        starts = [(b, pointer_of[b].offset) for b in built.buffers]
        return tuple(BufferSpan(b, at, at + self.buffers[b].bytes) for b, at in starts)
