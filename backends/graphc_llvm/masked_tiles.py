"""Skips the tiles of a GEMM that are fully masked: in them, none of the sums is chosen.

    scores = select(row >= column, sum * scale, low)

If the condition compares indices, the corners of a tile tell whether it holds anywhere in the tile.
If it does not, the tile need not be multiplied: every entry is the other value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llvmlite import ir

from graphc.lowering.kernel.code import (
    Apply,
    AxisIndex,
    Gemm,
    Load,
    Number,
    Statement,
    Store,
    registers,
)
from graphc.support.dataclass import dataclass
from graphc_llvm.expression_codegen import ExpressionPrinter, Registers
from graphc_llvm.vectors import Printer

Rises = dict[int, bool]  # for each axis whether a value grows along it (or falls)
LARGER = {"ge": True, "gt": True, "le": False, "lt": False}  # whether the first is the larger one


@dataclass(frozen=True)
class VisibleEntries:
    """Code that makes a register that tells whether an entry is seen, and how that goes by axes:
    along which it becomes true, and along which it becomes false."""

    code: tuple[Statement, ...]
    register: int
    rises: Rises

    def somewhere(
        self, p: Printer, product: Gemm, pointers: Sequence[ir.Value],
        first: Sequence[ir.Value], last: Sequence[ir.Value],
    ) -> ir.Value:  # fmt: skip
        """i1: whether an entry between two corners is seen."""
        at = [last[a] if self.rises.get(a) else x for a, x in enumerate(first)]
        values: Registers = {}
        ExpressionPrinter(p, product.params, pointers, pointers[0]).run(self.code, values, at, None)
        return values[self.register].value


def visible_entries(product: Gemm) -> VisibleEntries | None:
    """Where the sums of a product are seen; None where that is everywhere, or not known."""
    makers = {x.target: x for x in product.code if not isinstance(x, Store)}
    condition = _condition(product)
    for register in _all_of(makers, condition) if condition is not None else ():
        x = makers.get(register)
        if not isinstance(x, Apply) or x.function not in LARGER:
            continue
        sides = [
            _rises(makers, k, LARGER[x.function] == (n == 0), len(product.batch))
            for n, k in enumerate(x.arguments)
        ]
        if None in sides:
            continue
        both: list[Rises] = [s for s in sides if s is not None]
        if all(both[0][a] == both[1][a] for a in both[0].keys() & both[1].keys()):
            return VisibleEntries(_cone(product, register), register, both[0] | both[1])
    return None


def _condition(product: Gemm) -> int | None:
    """The one condition of all selects by which sums are seen, if they are seen by these alone."""
    depends, conditions = {0}, set[int]()
    for x in product.code:
        of_sum = depends & set(registers(x))
        if not of_sum:
            continue
        match x:
            case Apply(function="select", arguments=(where, y, other)):
                if y not in of_sum or {where, other} & of_sum:
                    return None
                conditions.add(where)
            case Apply(target=target):
                depends.add(target)
            case _:
                return None
    return conditions.pop() if len(conditions) == 1 else None


def _all_of(makers: Mapping[int, Statement], register: int) -> list[int]:
    """The conditions that must all hold."""
    waiting, conditions = [register], list[int]()
    while waiting:
        k = waiting.pop()
        match makers.get(k):
            case Apply(function="and", arguments=both):
                waiting += both
            case _:
                conditions.append(k)
    return conditions


def _rises(
    makers: Mapping[int, Statement], register: int, up: bool, batch: int
) -> Rises | None:  # fmt: skip
    """How a sum of indices, times positive numbers, goes by axes; None of what is none. batch: so
    many axes come first, along which a tile does not go: what is loaded may depend on them"""
    match makers.get(register):
        case AxisIndex(axis=axis):
            return {axis: up}
        case Number():
            return {}
        case Load(access=access, where=None) if (
            not any(access.strides[batch:]) and access.row is None
        ):
            return {}
        case Apply(function="cast", arguments=(x,), dtype=dtype) if dtype.kind == "i":
            return _rises(makers, x, up, batch)
        case Apply(function="add", arguments=(x, y)):
            parts = _rises(makers, x, up, batch), _rises(makers, y, up, batch)
        case Apply(function="mul", arguments=(x, y)):
            factor = makers.get(y)
            positive = isinstance(factor, Number) and factor.value > 0
            return _rises(makers, x, up, batch) if positive else None
        case _:
            return None
    return None if parts[0] is None or parts[1] is None else parts[0] | parts[1]


def _cone(product: Gemm, register: int) -> tuple[Statement, ...]:
    """The code that makes a register."""
    needed, cone = {register}, list[Statement]()
    for x in reversed(product.code):
        if not isinstance(x, Store) and x.target in needed:
            needed |= set(registers(x))
            cone.append(x)
    return tuple(cone[::-1])


__all__ = ["VisibleEntries", "visible_entries"]
