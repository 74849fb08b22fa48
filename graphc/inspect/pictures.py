"""Pictures of a graph: `FORMATS[name](graph, level, heading)` is the text of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from graphc.inspect.as_json import to_json
from graphc.inspect.diagrams import to_dot, to_mermaid
from graphc.inspect.folding import Level, picture
from graphc.inspect.scene import Scene
from graphc.inspect.svg import to_svg
from graphc.inspect.viewers import to_graphml, to_model_explorer
from graphc.ir.graph import Graph
from graphc.text import print_ir


def _ir(graph: Graph, level: Level | None = None, heading: str = "") -> str:
    return print_ir(graph)


def _json(graph: Graph, level: Level | None = None, heading: str = "") -> str:
    folds = level is not None and level is not Level.VALUES
    return to_json(graph, picture(graph, level) if folds else None)


class Format(Protocol):
    """Makes the text of a graph: of a picture, how much it shows and what its title adds."""

    def __call__(self, graph: Graph, level: Level | None = None, heading: str = "") -> str: ...


def _drawn(draw: Callable[[Scene], str]) -> Format:
    def text(graph: Graph, level: Level | None = None, heading: str = "") -> str:
        return draw(picture(graph, level, heading))

    return text


def _graphml(graph: Graph, level: Level | None = None, heading: str = "") -> str:
    return to_graphml(graph)


def _model_explorer(graph: Graph, level: Level | None = None, heading: str = "") -> str:
    return to_model_explorer(graph)


FORMATS: dict[str, Format] = {
    "ir": _ir, "dot": _drawn(to_dot), "svg": _drawn(to_svg), "mermaid": _drawn(to_mermaid),
    "json": _json,
    "graphml": _graphml, "model-explorer": _model_explorer,
}  # fmt: skip

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
