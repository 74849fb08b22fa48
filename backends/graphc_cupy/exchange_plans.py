"""What GPUs do in a collective: copies and sums on each of them, and calls of NCCL between them.

A group may have several members on one GPU: their arrays are added up there, or lie side by side,
and one message per pair of GPUs goes on. A sum in a fixed order is exchanged by grouped sends and
receives and added up by kernels, so its bits are those of one memory. A sum whose order is the
transport's own is NCCL's. Plans are addresses and sizes only: nothing is done here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from graphc.lowering.memory.arena import aligned
from graphc.lowering.target import GPU
from graphc.runtime.transports.transport import CollectiveCall, Parts
from graphc_cupy.exchange_ops import NcclOp
from graphc_cupy.plan_maker import (
    ADDED,
    BYTES,
    OPS,
    ArrayCut,
    ExchangeEnds,
    ExchangePlan,
    PlanMaker,
    Shape,
)  # fmt: skip

AT_ONCE = 1 << 17  # bytes of a sum in a fixed order up to which all GPUs add up all of it


def planned(
    call: CollectiveCall, ends: ExchangeEnds, base: Mapping[int, int] | None = None
) -> ExchangePlan:
    """The plan of a collective. base: where the memory begins that GPUs have for it (see
    `ExchangePlan.room`)"""
    planner = _Kinds(call, ends, base or {})
    getattr(planner, call.kind.value)()
    phases = tuple(tuple(x) for x in planner.phases if x)
    return ExchangePlan(call, planner.gpus, phases, planner.used)


class _Kinds(PlanMaker):
    """A method for each kind of collective."""

    def all_reduce(self) -> None:
        if not self.by_nccl:
            self._ordered_all_reduce()
            return
        words = ADDED[self.ends.dtype], OPS[self.call.reduce_op]
        totals = {g: self.total(g) for g in self.here}
        self.group([
            NcclOp(g, "allReduce", (totals[g], self.outs(g)[0], prod(self.piece), *words))
            for g in self.here
        ])  # fmt: skip
        for g in self.here:
            self.spread(g, self.size_of_sum)

    def reduce(self) -> None:
        homes = [g for g in self.gpus if self._owners(g)]
        if not self.by_nccl:
            whole = ArrayCut((prod(self.piece),), 0, 0, prod(self.piece))
            got = self.exchanged({g: [whole] if g in homes else [] for g in self.gpus})
            for g in self.here:
                if g in homes:
                    self.add(g, got[g][0], self.outs(g)[0], prod(self.piece))
                    self.spread(g, self.size_of_sum)
            return
        words = ADDED[self.ends.dtype], OPS[self.call.reduce_op]
        totals = {g: self.total(g) for g in self.here}
        for home in homes:
            root = self.gpus.index(home)
            self.group([
                NcclOp(
                    g, "reduce",
                    (totals[g], self.outs(g)[0] if g == home else totals[g], prod(self.piece),
                     *words, root),
                )
                for g in self.here
            ])  # fmt: skip
            if home in self.here:
                self.spread(home, self.size_of_sum)

    def _owners(self, gpu: int) -> list[int]:
        return [i for i in self.positions[gpu] if self.call.group[i] in self.call.owners]

    def reduce_scatter(self) -> None:
        after = self.call.after
        assert after is not None
        if self.by_nccl:
            self._nccl_reduce_scatter(after)
            return
        cuts = {
            g: [ArrayCut(self.piece, after.dim, *after.spans[i]) for i in self.positions[g]]
            for g in self.gpus
        }
        got = self.exchanged(cuts)
        for g in self.here:
            for i, cut, rows in zip(self.positions[g], cuts[g], got[g], strict=True):
                out = self.ends.outs[i]
                assert out is not None
                into = ArrayCut(self.result, after.dim, 0, cut.count)
                self.clear(g, out, self.result, cut.count == after.size)
                dense = self.lies_dense(into)
                to = out if dense else self.room(g, cut.entries * self.size)
                self.add(g, rows, to, cut.entries)
                if not dense:
                    self.put(g, out, into, to)

    def _ordered_all_reduce(self) -> None:
        """Each GPU adds up a part, which the others get then; of little, each adds up all."""
        count, n = prod(self.piece), len(self.gpus)
        if self.size_of_sum * (n - 1) <= AT_ONCE:
            ends = [0] * n + [count]
            got = self.exchanged({g: [ArrayCut((count,), 0, 0, count)] for g in self.gpus})
        else:
            step = aligned(-(-count // n), GPU.align)
            ends = [min(k * step, count) for k in range(n)] + [count]
            parts = {
                g: [ArrayCut((count,), 0, ends[k], ends[k + 1] - ends[k])]
                for k, g in enumerate(self.gpus)
            }
            got = self.exchanged(parts)
        for k, g in enumerate(self.gpus):
            if g in self.here:
                first = self.outs(g)[0]
                start, stop = (0, count) if not ends[n - 1] else ends[k : k + 2]
                self.add(g, got[g][0], first + start * self.size, stop - start)
        if ends[n - 1]:
            self._share_parts(ends)
        for g in self.here:
            self.spread(g, self.size_of_sum)

    def _share_parts(self, ends: Sequence[int]) -> None:
        """Send the parts of a sum, of which each GPU has one in its first result, to all."""
        ops: list[NcclOp] = []
        for k, p in enumerate(self.gpus):
            start, size = ends[k] * self.size, (ends[k + 1] - ends[k]) * self.size
            for q in self.gpus if size else ():
                if p != q:
                    first, there = (self.outs(g)[0] if g in self.here else 0 for g in (p, q))
                    ops += self.message(first + start, p, there + start, q, size)
        self.group(ops)

    # -- parts that lie side by side --------------------------------------------------------------

    def _segments(self, shape: Shape, parts: Parts) -> tuple[dict[int, int], int]:
        """Where the part of each position begins in what its GPU has, and the most bytes of one."""
        unit = prod(shape[: parts.dim]) * prod(shape[parts.dim + 1 :]) * self.size
        begins, most = dict[int, int](), 0
        for g in self.gpus:
            at = 0
            for i in self.positions[g]:
                begins[i] = at
                at += parts.spans[i][1] * unit
            most = max(most, at)
        return begins, most

    def _in_rows(self, shape: Shape, parts: Parts) -> bool:
        """Whether the parts of GPUs lie one behind the other, as NCCL takes them."""
        n = parts.spans[0][1]
        even = parts.spans == tuple((k * n, n) for k in range(len(self.gpus)))
        return even and prod(shape[: parts.dim]) == 1 and self.ends.gpus == self.gpus

    def _nccl_reduce_scatter(self, after: Parts) -> None:
        words = ADDED[self.ends.dtype], OPS[self.call.reduce_op]
        begins, most = self._segments(self.piece, after)
        if not most:
            for g in self.here:
                for out in self.outs(g):
                    self.clear(g, out, self.result, covered=False)
            return
        direct = self._in_rows(self.piece, after)
        calls, to = list[NcclOp](), dict[int, int]()
        for g in self.here:
            total = self.total(g)
            start = total if direct else self.room(g, most * len(self.gpus))
            whole = direct and after.spans[0][1] == after.size
            to[g] = self.outs(g)[0] if whole else self.room(g, most)
            for q, p in enumerate(self.gpus) if not direct else ():
                for i in self.positions[p]:
                    cut = ArrayCut(self.piece, after.dim, *after.spans[i])
                    self.dense(g, total, cut, start + q * most + begins[i])
            count = most // self.size
            calls.append(NcclOp(g, "reduceScatter", (start, to[g], count, *words)))
        self.group(calls)
        for g in self.here:
            for i in self.positions[g]:
                n, mine = after.spans[i][1], self.ends.outs[i]
                if mine is not None and mine != to[g]:
                    self.clear(g, mine, self.result, n == after.size)
                    self.put(g, mine, ArrayCut(self.result, after.dim, 0, n), to[g] + begins[i])

    def all_gather(self) -> None:
        before, shape = self.call.before, self.ends.shape
        assert before is not None
        begins, most = self._segments(shape, before)
        end = max(start + n for start, n in before.spans)
        covered = end == before.size
        direct = self._in_rows(shape, before) and covered
        calls, to = list[NcclOp](), dict[int, int]()
        for g in self.here:
            own = [
                (begins[i], self.x(i), ArrayCut(shape, before.dim, 0, before.spans[i][1]))
                for i in self.positions[g]
            ]
            if len(own) == 1 and self.lies_dense(own[0][2]):
                start = own[0][1]
            else:
                start = self.room(g, most)
                for begin, x, cut in own:
                    self.dense(g, x, cut, start + begin)
            to[g] = self.outs(g)[0] if direct else self.room(g, most * len(self.gpus))
            calls.append(NcclOp(g, "allGather", (start, to[g], most, BYTES)))
        self.group(calls if most else [])
        for g in self.here:
            for out in self.outs(g) if not direct else ():
                self.clear(g, out, self.result, covered)
                for i, (start, n) in enumerate(before.spans):
                    segment = to[g] + self.gpus.index(self.ends.gpus[i]) * most + begins[i]
                    self.put(g, out, ArrayCut(self.result, before.dim, start, n), segment)

    # -- moves ------------------------------------------------------------------------------------

    def broadcast(self) -> None:
        (owner,) = self.call.owners
        at, size = self.call.group.index(owner), prod(self.ends.shape) * self.size
        home, calls = self.ends.gpus[at], list[NcclOp]()
        for g in self.here:
            to = self.outs(g)[0]
            start = self.x(at) if g == home else to
            calls.append(NcclOp(g, "broadcast", (start, to, size, BYTES, self.gpus.index(home))))
        self.group(calls if size else [])
        for g in self.here:
            self.spread(g, size)

    def all_to_all(self) -> None:
        before, after = self.call.before, self.call.after
        assert before is not None and after is not None
        got = dict[tuple[int, int], int]()
        ops: list[NcclOp] = []
        for k, p in enumerate(self.ends.gpus):
            valid = ArrayCut(self.ends.shape, before.dim, 0, before.spans[k][1])
            x = self.dense(p, self.x(k), valid) if p in self.here else 0
            for i, q in enumerate(self.ends.gpus):
                cut = ArrayCut(valid.taken, after.dim, *after.spans[i])
                size = cut.entries * self.size
                part = self.dense(p, x, cut) if p in self.here and size else 0
                to = part if p == q else self.room(q, size) if q in self.here else 0
                ops += self.message(part, p, to, q, size) if p != q and size else []
                got[i, k] = to
        self.group(ops)
        for g in self.here:
            for i in self.positions[g]:
                self._join(g, i, before, after, got)

    def _join(
        self, gpu: int, i: int, before: Parts, after: Parts, got: Mapping[tuple[int, int], int]
    ) -> None:
        """Put what a member got of all others to its place."""
        out, n = self.ends.outs[i], after.spans[i][1]
        assert out is not None
        ours = ArrayCut(self.result, after.dim, 0, n)
        end = max(start + m for start, m in before.spans)
        self.clear(gpu, out, self.result, n == after.size and end == before.size)
        whole = n == after.size
        into = out if whole else self.room(gpu, ours.entries * self.size)
        self.clear(gpu, into, ours.taken, whole or end == before.size)
        for k, (start, m) in enumerate(before.spans):
            self.put(gpu, into, ArrayCut(ours.taken, before.dim, start, m), got[i, k])
        if not whole:
            self.put(gpu, out, ours, into)
