"""Lazy updates: rows of a table that have no gradient are left alone.

Momentum and Adam move every param in every step, by what they remember. For a large table of which
a step looks up a few rows, that costs as much as the table, and moves rows for which there is no
new evidence. A lazy update computes the same rule for those rows whose gradient is not all zeros;
the others, and their slots, keep their values. (PyTorch: SparseAdam; TensorFlow Addons: LazyAdam)

That depends on the gradient alone, and not on whether it is kept as rows: so the result is the same
with `sparse` on and off, up to rounding, and under every strategy.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TypeAlias

from graphc.ir.builder import Value
from graphc.ops.optimizers.optimizer import Moment, PerVariable
from graphc.ops.sparse import Rows

Slots: TypeAlias = dict[str, Value]  # of one variable


class LazyRule(PerVariable):
    """An optimizer that may be lazy; params of one dim are never treated so."""

    lazy: bool = False

    @abstractmethod
    def rule(self, at: Moment, name: str, g: Value, slots: Slots) -> tuple[Value, Slots]:
        """The move and the new slots, entry by entry, of a whole table or of some of its rows."""

    def move(self, at: Moment, name: str, g: Value, slots: Slots) -> tuple[Value, Slots]:
        move, new = self.rule(at, name, g, slots)
        if not self.lazy or g.rank < 2:
            return move, new
        f, seen = at.f, _not_zero(g, 1)
        return f.where(seen, move, 0.0), {k: f.where(seen, x, slots[k]) for k, x in new.items()}

    def takes_rows(self, at: Moment, name: str) -> bool:
        return self.lazy and at.params[name].rank > 1

    def move_rows(self, at: Moment, name: str, g: Rows, slots: Slots) -> tuple[Rows, Slots]:
        f, seen = at.f, _not_zero(g.values, g.ids.rank)
        held = {k: g.of(x) for k, x in slots.items()}
        own = replace(at, params={**at.params, name: g.of(at.params[name])})
        move, new = self.rule(own, name, g.values, held)

        def kept(x: Value) -> Rows:
            return replace(g, values=f.where(seen, x, 0.0))

        changed = {k: kept(x - held[k]).added_to(slots[k]) for k, x in new.items()}
        return kept(move), changed


def _not_zero(rows: Value, lead: int) -> Value:
    """Of each row, behind `lead` dims, whether it has an entry that is not 0."""
    f = rows.builder
    return f.any_(f.ne(rows, 0), axis=tuple(range(lead, rows.rank)), keepdims=True)
