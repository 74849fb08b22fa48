"""Pictures of a graph: `FORMATS[name](graph)` is the text of one."""

from __future__ import annotations

from collections.abc import Callable

from graphc.inspect.as_json import to_json
from graphc.inspect.diagrams import to_dot, to_mermaid
from graphc.inspect.svg import to_svg
from graphc.ir.graph import Graph
from graphc.text import print_ir

FORMATS: dict[str, Callable[[Graph], str]] = {
    "ir": print_ir, "dot": to_dot, "svg": to_svg, "mermaid": to_mermaid, "json": to_json,
}  # fmt: skip

__all__ = ["FORMATS", "to_dot", "to_json", "to_mermaid", "to_svg"]
