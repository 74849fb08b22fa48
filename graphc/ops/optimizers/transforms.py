"""Transforms: what stands before an optimizer, or after it, in a chain."""

from __future__ import annotations

from typing import ClassVar

from graphc.ir.builder import Value
from graphc.ir.op import record
from graphc.ir.types import F64
from graphc.ops.optimizers.optimizer import Gradients, Moment, Slots, Transform
from graphc.ops.optimizers.schedules import Rate
from graphc.ops.sparse import densified, entries, mapped
from graphc.support.dataclass import dataclass
from graphc.support.errors import GraphcError


@record
@dataclass(frozen=True)
class ClipByGlobalNorm(Transform):
    """`g *= max_norm / max(|all gradients|, max_norm)` (Pascanu, Mikolov, Bengio 2012)"""

    max_norm: Rate

    def takes_rows(self, at: Moment, name: str) -> bool:
        return True  # rows are joined: the squares of their entries are those of the table's

    def moves(self, at: Moment, given: Gradients, slots: Slots) -> tuple[Gradients, Slots]:
        norm = at.f.global_norm(map(entries, given.values()))
        limit = at.fitted(at.rate(self.max_norm), norm.dtype)
        factor = limit / at.f.maximum(norm, limit)
        return {v: at.scaled(g, factor) for v, g in given.items()}, {v: {} for v in given}


@record
@dataclass(frozen=True)
class ClipByValue(Transform):
    """`g = min(max(g, -limit), limit)`, entry by entry"""

    limit: Rate

    def takes_rows(self, at: Moment, name: str) -> bool:
        return True

    def moves(self, at: Moment, given: Gradients, slots: Slots) -> tuple[Gradients, Slots]:
        limit = at.rate(self.limit)

        def clipped(x: Value) -> Value:
            return at.within(x, -limit, limit)

        return {v: mapped(g, clipped) for v, g in given.items()}, {v: {} for v in given}


@record
@dataclass(frozen=True)
class Ema(Transform):
    """`ema = decay * ema + (1 - decay) * p`, with the new p; the slot starts from the first p

    The average of the weights is in the slot `ema` (Polyak, Juditsky 1992).
    """

    decay: Rate = 0.999
    slot_names: ClassVar[tuple[str, ...]] = ("ema",)
    watches = True

    def moves(self, at: Moment, given: Gradients, slots: Slots) -> tuple[Gradients, Slots]:
        first = at.f.eq(at.step, 0)
        new: Slots = {}
        for v, move in given.items():
            p = at.params[v]
            average = at.f.where(first, p, slots[v]["ema"])
            behind = p + densified(move) - average
            new[v] = {"ema": average + at.times(1 - at.rate(self.decay), behind)}
        return given, new


@record
@dataclass(frozen=True)
class Reporting(Transform):
    """`g = g`; reports the rate `lr`, and the norm `grad_norm` of all gradients as they come here

    Before clipping, it is the norm of the gradients; after it, of what is left of them. A second
    loss has `lr2` and `grad_norm2`. by_group has a rate for each group, `lr[PATTERN]`.
    """

    lr: bool = True
    grad_norm: bool = True

    def takes_rows(self, at: Moment, name: str) -> bool:
        return True  # rows are joined: the squares of their entries are those of the table's

    def moves(self, at: Moment, given: Gradients, slots: Slots) -> tuple[Gradients, Slots]:
        if self.lr:
            for name, rate in at.rates.items():
                now = at.rate(rate)
                value = at.f.constant(float(now), F64) if isinstance(now, int | float) else now
                self._output(at, name, value.name)
        if self.grad_norm:
            norm = at.f.global_norm(map(entries, given.values()))
            self._output(at, "grad_norm", norm.name)
        return given, {v: {} for v in given}

    def _output(self, at: Moment, name: str, value: str) -> None:
        name = f"{name}{at.loss}"
        if name in at.f.outputs:
            text = f"'{name}' is reported by the step, and by the optimizer"
            raise GraphcError("G0113", text, help="give the step's own report another name")
        at.f.outputs[name] = value
