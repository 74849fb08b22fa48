"""The text form of a graph: `parse_ir(print_ir(g, locs=True)) == g`. Its grammar is `ir.lark`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphc.text.printer import print_ir, print_nodes

if TYPE_CHECKING:
    from graphc.ir.graph import Graph


def parse_ir(text: str, file: str = "<ir>") -> Graph:
    """The graph that a text describes, not yet verified. Raises G0901 to G0906 with the span."""
    from graphc.text.parser import parse  # here, since printing alone needs no Lark

    return parse(text, file)


__all__ = ["parse_ir", "print_ir", "print_nodes"]
