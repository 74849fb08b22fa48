"""Runs as kernels: rows of a size that fits into a cache, and memory for what lives between steps.

A value of which nobody outside of the run reads has a place in each thread's own memory, as large
as a block's rows of it; steps that do not need it at the same time share the place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from graphc.lowering.fusion.build import Built
from graphc.lowering.kernel.code import OWN, Blocks, Param, Product, Step, Store, statements
from graphc.lowering.program.arena import aligned
from graphc.lowering.program.program import Buffer
from graphc.lowering.tiling.row_access import Seen, cut
from graphc.lowering.tiling.row_tiling import Pair, Run, Runs
from graphc.lowering.tiling.scratch_reuse import laid_out
from graphc.lowering.tiling.tile_code import Behind, Frame, step, total_dtype, without

CACHE = 3 << 18  # bytes of what lives between the steps: most of a second-level cache
FEW = 16  # rows for which a product is hardly worth its packing


def in_blocks(
    pairs: Sequence[Pair], buffers: Sequence[Buffer], shared: set[int], exact: bool,
    homes: Mapping[int, int] | None = None,
) -> list[Pair]:  # fmt: skip
    """The kernels of a stretch, those of each run as one.

    shared: buffers that must be in memory after the stretch. exact: no sum is made in other parts
    than by the kernel alone. homes: see graphc.lowering.fusion.fuse
    """
    runs = Runs(pairs, buffers, shared, homes)
    if not runs.found:
        return list(pairs)
    return [
        _Joining(runs, x, exact).pair() if isinstance(x, Run) else pairs[x] for x in runs.ordered()
    ]


@dataclass(frozen=True)
class _Part:
    """A kernel of a run, and which it was."""

    number: int
    x: Seen


class _Joining:
    """Makes the kernel of one run."""

    def __init__(self, runs: Runs, run: Run, exact: bool) -> None:
        self.runs, self.run = runs, run
        self.own = runs.own(run)
        self.parts = self._parts()
        self.frame = self._frame(exact)
        self.slots: dict[int, int] = {}
        self.params: list[Param] = []

    def _parts(self) -> list[_Part]:
        """The kernels without what nobody needs of them."""
        needed, made = set[int](), list[_Part]()
        for i in reversed(self.run.steps):
            built = self.runs.pairs[i][0]
            dead = {k for k, b in enumerate(built.buffers) if b in self.own - needed}
            kernel = without(self.runs.kernel(i), dead)
            if not any(isinstance(x, Store) for x in statements(kernel)):
                continue
            lengths = self.runs.lengths(self.run, i)
            if i in self.run.sums:
                lengths = {b: n for b, n in lengths.items() if b not in self.runs.writes[i]}
            x = self.runs.fitted(i, lengths, kernel)
            assert x is not None
            made.insert(0, _Part(i, cut(x, self.run.rows)))
            needed |= {built.buffers[r.slot] for r in x.reaches}
        return made

    # -- how large the blocks are -----------------------------------------------------------------

    def _frame(self, exact: bool) -> Frame:
        length = self.run.rows[1]
        if exact and self.run.sums:
            return Frame(self.run.rows, length)
        per_row = self._laid_out(64)[1] / 64
        rows = max(FEW, int(CACHE / max(per_row, 1)))
        parts = -(-length // rows)
        rows = -(-length // parts)
        return Frame(self.run.rows, length if parts == 1 else -(-rows // FEW) * FEW)

    def _laid_out(self, rows: int) -> tuple[dict[int, int], int]:
        """Where the rows of own values lie, and the bytes of all."""
        steps = [(part.x, self.runs.pairs[part.number][0].buffers) for part in self.parts]
        return laid_out(steps, self.own, self.run.lengths, self.runs.buffers, rows)

    # -- the kernel -------------------------------------------------------------------------------

    def pair(self) -> Pair:
        """The kernel, and the names of what it does, a line for each step."""
        frame = self.frame
        begin = aligned(8 * len(frame.chain[1:]))
        totals: dict[int, int] = {}
        for part in self.parts if frame.count > 1 else ():
            product = part.x.kernel
            if part.x.sums and isinstance(product, Product):
                totals[part.number] = begin
                begin += aligned(_entries(part.x) * total_dtype(product).bytes)
        places, size = self._laid_out(frame.rows)
        steps = []
        for part in self.parts:
            behind = self._behind(part, {b: begin + at for b, at in places.items()})
            steps.append(step(part.x, frame, behind, totals.get(part.number)))
        starts, moved = _from_the_start(steps, len(self.params))
        kernel = Blocks(
            tuple(self.params), frame.outer, frame.count, frame.rows, moved, begin + size,
            ordered=bool(totals),
        )  # fmt: skip
        name = "\n".join(self.runs.pairs[part.number][1] for part in self.parts)
        return Built(kernel, tuple(self.slots), starts), name

    def _behind(self, part: _Part, places: dict[int, int]) -> list[Behind]:
        built, found = self.runs.pairs[part.number][0], list[Behind]()
        used, params = {r.slot for r in part.x.reaches}, part.x.kernel.params
        for k, (b, offset) in enumerate(zip(built.buffers, built.offsets, strict=True)):
            if b in self.own or k not in used:
                found.append(Behind(OWN, places.get(b, 0) + offset))
            else:
                found.append(Behind(self._slot(b, params[k]), offset))
        return found

    def _slot(self, b: int, param: Param) -> int:
        if b not in self.slots:
            self.slots[b] = len(self.params)
            self.params.append(param)
        at = self.slots[b]
        self.params[at] = replace(param, written=param.written or self.params[at].written)
        return at


def _entries(x: Seen) -> int:
    """Of what a product makes for one outer index."""
    return prod(a.size for a in x.axes if a.group != "inner" and a.unit is None)


def _from_the_start(steps: Sequence[Step], params: int) -> tuple[tuple[int, ...], tuple[Step, ...]]:
    """Where each parameter begins, and the steps from there on."""
    starts = [
        min((p.offset for s in steps for p in s.places if p.slot == k), default=0)
        for k in range(params)
    ]

    def moved(s: Step) -> Step:
        places = (
            p if p.slot == OWN else replace(p, offset=p.offset - starts[p.slot]) for p in s.places
        )
        return replace(s, places=tuple(places))

    return tuple(starts), tuple(map(moved, steps))


__all__ = ["in_blocks"]
