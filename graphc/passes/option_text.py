"""The options of passes as text, for printing and for `graphc opt`.

A pass holds objects: a strategy, axes, orders by axis. They become text only where a pass is
printed, as in `place{strategy=mirrored(2)}`, and objects again where such a text is read.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from graphc.ir.orders import Order, Orders, parse_order, parse_orders
from graphc.ir.types import DType, dtype_named
from graphc.strategies import Strategy, parse_strategy
from graphc.support.errors import GraphcError

Axes: TypeAlias = tuple[str, ...]  # `data+turn`
AxisOrders: TypeAlias = tuple[tuple[str, Order], ...]  # `data=tree+turn=add_n`

_MARKS = re.compile(r'"[^"]*"|[(\[{]|[)\]}]|,')


def option_text(value: Any) -> str:
    """The value of an option as text."""
    if isinstance(value, tuple):
        return "+".join(x if isinstance(x, str) else "=".join(map(str, x)) for x in value)
    return str(value)


def option_value(text: str, kind: Any) -> Any:
    """The value of an option of a type, from its text. Raises G0990, G0201, G0308, G01xx, G04xx."""
    if kind is bool:
        return text.lower() in ("1", "true", "yes")
    if kind is int:
        return _integer(text)
    if kind is DType:
        return dtype_named(text.strip())
    if kind is Strategy:
        return parse_strategy(text)
    if kind == Axes:
        return tuple(filter(None, text.split("+")))
    if kind == AxisOrders:
        pairs = (x.partition("=") for x in text.split("+") if x)
        return tuple((axis, parse_order(order)) for axis, _, order in pairs)
    if kind is Orders:
        return parse_orders(text)
    return text


def _integer(text: str) -> int:
    if not re.fullmatch(r"\s*-?\d{1,18}\s*", text):
        raise GraphcError("G0990", f"an option of a pass must be an integer, not '{text}'")
    return int(text)


def split_at_commas(text: str) -> list[str]:
    """The parts between commas, ignoring those in brackets and quotes."""
    parts, start, depth = [], 0, 0
    for mark in _MARKS.finditer(text):
        match mark[0]:
            case "(" | "[" | "{":
                depth += 1
            case ")" | "]" | "}":
                depth -= 1
            case "," if depth == 0:
                parts.append(text[start : mark.start()])
                start = mark.end()
    return [part for part in (*parts, text[start:]) if part.strip()]
