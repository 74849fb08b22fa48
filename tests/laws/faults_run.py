"""Faults of schedule, buffers, executors and transports."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from graphc_numpy.calls import binding
from laws.fault import Patch, around, fault

import graphc.ir.placement
import graphc.lowering.program.instructions
import graphc.lowering.program.program
from graphc.lowering.memory import memory_plan, timeline
from graphc.lowering.memory.timeline import FOREVER, Timeline
from graphc.lowering.schedule import schedule
from graphc.ops import collective
from graphc.ops.collective import Keep, Recall
from graphc.runtime.backends import executor
from graphc.runtime.data.supply import WholeBatch
from graphc.runtime.transports import exchange, local

# -- memory ---------------------------------------------------------------------------------------


@fault("memory")
def _freed_by_the_first_reader(patch: Patch) -> None:
    """A buffer is given away after it was read once."""

    def change(old: Any, timeline: Timeline, outputs: Any) -> Any:
        lives, seen = old(timeline, outputs), set[int]()
        for at, touched in enumerate(timeline.touched):
            for b in touched:
                if b in seen and lives[b][-1][1] < FOREVER:
                    lives[b] = ((lives[b][0][0], min(at, lives[b][-1][1])),)
                seen.add(b)
        return lives

    around(patch, memory_plan, "lives_of", change)


@fault("memory")
def _freed_within_the_loop(patch: Patch) -> None:
    """What every turn reads lives to its last reader in the loop only."""
    patch.setattr(timeline, "_round_the_loops", lambda first, last, times, _: ((first, last),))


@fault("memory")
def _freed_while_sent(patch: Patch) -> None:
    """A buffer that a collective still sends is given away."""

    def change(old: Any, program: Any) -> Any:
        found = old(program)
        found.spans.clear()
        return found

    around(patch, memory_plan, "timeline_of", change)


# -- running --------------------------------------------------------------------------------------


@fault("run", "shadow")
def _old_value_read_new(patch: Patch) -> None:
    """A variable's old value is not kept where another one takes it."""
    patch.setattr(schedule._Scheduler, "_snapshot", lambda self, phase: None)


@fault("run", "shadow")
def _variable_overwritten_early(patch: Patch) -> None:
    """A variable is overwritten although its old value is read later."""

    def change(old: Any, self: Any, tail: Any) -> None:
        old(self, tail)
        self.last_reads.clear()

    around(patch, schedule._Scheduler, "_note_tail", change)


@fault("run", "barrier")
def _kept_in_one_place(patch: Patch) -> None:
    """Every turn writes what it keeps over what the turn before has kept."""
    around(patch, executor, "convert", partial(_at_turn_zero, Keep))
    around(patch, binding, "convert", partial(_at_turn_zero, Keep))


@fault("run", "barrier")
def _recalled_from_one_turn(patch: Patch) -> None:
    """Every turn recalls what the first one has kept."""
    around(patch, executor, "convert", partial(_at_turn_zero, Recall))
    around(patch, binding, "convert", partial(_at_turn_zero, Recall))


def _at_turn_zero(op: type, old: Any, kernel: Any, site: Any, turn: int, *rest: Any) -> None:
    old(kernel, site, 0 if isinstance(kernel.op, op) else turn, *rest)


@fault("run")
def _order_swapped_on_one_rank(patch: Patch) -> None:
    """One rank begins two collectives in another order than the rest."""
    held: dict[str, Any] = {}

    def change(old: Any, self: Any, call: Any, x: Any = None, out: Any = None) -> Any:
        if self.rank != 1 or "done" in held:
            return old(self, call, x, out)
        if "first" not in held:
            held["first"] = _Later(call, x, out)
            return held["first"]
        handle = old(self, call, x, out)
        first = held["first"]
        first.handle = old(self, first.call, first.x, first.out)
        held["done"] = True
        return handle

    around(patch, local.LocalCommunicator, "start", change)


class _Later:
    """A collective that is begun after the next one."""

    def __init__(self, call: Any, x: Any, out: Any) -> None:
        self.call, self.x, self.out, self.handle = call, x, out, None

    def wait(self) -> Any:
        return self.handle.wait() if self.handle else self.out


@fault("run")
def _offset_off_by_one(patch: Patch) -> None:
    """Every shard but the first begins one entry too late."""

    def change(old: Any, count: int, *parts: Any) -> tuple[int, int]:
        offset, length = old(count, *parts)
        return (offset + 1, length - 1) if offset and length else (offset, length)

    around(patch, graphc.lowering.program.instructions, "shard_bounds", change)


@fault("run")
def _shard_too_short(patch: Patch) -> None:
    """A shard's shape is rounded down."""

    def floor(count: int, sizes: Any, widths: Any = ()) -> int:
        for n in sizes:
            count //= n
        return count

    patch.setattr(graphc.ir.placement, "capacity", floor)


@fault("run")
def _accumulator_not_reset(patch: Patch) -> None:
    """A running sum goes on from the step before."""
    _change_accumulate(patch, lambda turn: turn + 1)


@fault("run")
def _only_the_last_turn(patch: Patch) -> None:
    """A running sum starts anew every turn."""
    _change_accumulate(patch, lambda turn: 0)


def _change_accumulate(patch: Patch, change: Callable[[int], int]) -> None:
    def changed(old: Any, kernel: Any, site: Any, turn: int, *rest: Any) -> None:
        is_sum = isinstance(kernel.op, collective.Accumulation)
        old(kernel, site, change(turn) if is_sum else turn, *rest)

    around(patch, executor, "convert", changed)


@fault("run")
def _turn_counted_twice(patch: Patch) -> None:
    """The first microbatch is fed in every turn."""

    def change(old: Any, self: Any, name: str, buffer: Any, at: Any, out: Any) -> None:
        old(self, name, buffer, {k: 0 if k.startswith("turn") else v for k, v in at.items()}, out)

    around(patch, WholeBatch, "fill", change)


@fault("run")
def _kept_everywhere(patch: Patch) -> None:
    """R to P keeps the value on every device."""

    def change(old: Any, kernel: Any, site: Any, turn: int, supply: Any, xs: Any, out: Any) -> None:
        if isinstance(kernel.op, collective.ToPartial):
            np.copyto(out, xs[0])
        else:
            old(kernel, site, turn, supply, xs, out)

    around(patch, executor, "convert", change)


@fault("run")
def _mean_by_the_local_count(patch: Patch) -> None:
    """A mean divides by the examples of this device."""
    around(patch, executor, "dim_size", lambda old, op, supply: max(1, old(op, supply) // 2))


@fault("run")
def _tree_without_its_last_leaf(patch: Patch) -> None:
    """A tree of an odd number of leaves leaves one out."""

    def change(old: Any, parts: Any, *rest: Any) -> Any:
        return old(parts[: len(parts) // 2 * 2 or 1], *rest)

    around(patch, exchange, "_tree", change)


@fault("run")
def _summed_twice_on_the_way(patch: Patch) -> None:
    """The transport adds one device's part twice."""
    around(patch, exchange, "_chain", lambda old, parts, *r: old([parts[0], *parts], *r))


@fault("run")
def _gathered_in_reverse(patch: Patch) -> None:
    """all_gather puts the parts in the wrong order."""

    around(patch, exchange, "join_parts", lambda old, out, xs, parts: old(out, xs[::-1], parts))


# -- what is no number ----------------------------------------------------------------------------
# The laws compare with `<=`, to which a NaN is a difference; the comparison of `graphc check` was
# a `max`, to which it is none.


@fault("check")
def _a_sum_over_devices_gives_nan(patch: Patch) -> None:
    """A sum over devices gives a NaN in its last entry."""
    patch.setattr(exchange, "COMBINE", exchange.COMBINE | {"sum": _ending_in(float("nan"))})


@fault("check")
def _a_sum_over_devices_overflows(patch: Patch) -> None:
    """A sum over devices gives an infinity in its last entry."""
    patch.setattr(exchange, "COMBINE", exchange.COMBINE | {"sum": _ending_in(float("inf"))})


def _ending_in(last: float) -> Callable[..., Any]:
    def add(x: Any, y: Any, out: Any = None, **options: Any) -> Any:
        total = np.add(x, y, out, **options)
        if np.ndim(total) and total.dtype.kind == "f":
            total.reshape(-1)[-1:] = last
        return total

    return add
