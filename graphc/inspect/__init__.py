"""Pictures of a graph: `FORMATS[name](graph, level)` is the text of one."""

from __future__ import annotations

from collections.abc import Callable

from graphc.inspect.as_json import to_json
from graphc.inspect.diagrams import to_dot, to_mermaid
from graphc.inspect.folding import Level, picture
from graphc.inspect.svg import to_svg
from graphc.inspect.viewers import to_graphml, to_model_explorer
from graphc.ir.graph import Graph
from graphc.text import print_ir


def _ir(graph: Graph, level: Level | None) -> str:
    return print_ir(graph)


def _json(graph: Graph, level: Level | None) -> str:
    folds = level is not None and level is not Level.VALUES
    return to_json(graph, picture(graph, level) if folds else None)


FORMATS: dict[str, Callable[[Graph, Level | None], str]] = {
    "ir": _ir,
    "dot": lambda graph, level: to_dot(picture(graph, level)),
    "svg": lambda graph, level: to_svg(picture(graph, level)),
    "mermaid": lambda graph, level: to_mermaid(picture(graph, level)),
    "json": _json,
    "graphml": lambda graph, level: to_graphml(graph),
    "model-explorer": lambda graph, level: to_model_explorer(graph),
}

__all__ = [
    "FORMATS",
    "Level",
    "picture",
    "to_dot",
    "to_graphml",
    "to_json",
    "to_mermaid",
    "to_model_explorer",
    "to_svg",
]
