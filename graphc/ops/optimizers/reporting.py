"""What an update reports of itself: its rate, and the norm of the gradients."""

from __future__ import annotations

from graphc.ir.op import record
from graphc.ir.types import F64
from graphc.ops.optimizers.optimizer import Gradients, Moment, Slots, Transform
from graphc.ops.sparse import entries
from graphc.support.dataclass import dataclass
from graphc.support.errors import GraphcError


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
