"""A graph as DOT text for Graphviz."""

from __future__ import annotations

from graphc.inspect.scene import STYLES, Box, Kind, clip, scene
from graphc.ir.graph import Graph

_SHAPES = {Kind.INPUT: "oval", Kind.VARIABLE: "cylinder", Kind.CONSTANT: "plain", Kind.END: "cds"}


def to_dot(graph: Graph) -> str:
    """The graph as DOT. Names and labels are data: whatever they hold, they stay inside quotes."""
    picture = scene(graph)
    lines = [
        "digraph graphc {",
        f"  label={_quoted(picture.title)}; labelloc=t; rankdir=TB;",
        '  node [fontname="monospace", fontsize=10, style="filled"];',
        '  edge [color="#8a93a0", arrowsize=0.6];',
        *(f"  n{i} [{_attributes(box)}];" for i, box in enumerate(picture.boxes)),
        *(f"  n{a} -> n{b};" for a, b in picture.edges),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _attributes(box: Box) -> str:
    style = STYLES[box.kind]
    given = {
        "label": "\n".join(clip(line, 60) for line in box.lines),
        "tooltip": box.tooltip,
        "shape": _SHAPES.get(box.kind, "box"),
        "fillcolor": style.fill,
        "color": style.stroke,
        "style": "filled,dashed" if box.inserted else "filled",
    }
    return ", ".join(f"{key}={_quoted(value)}" for key, value in given.items())


def _quoted(text: str) -> str:
    # A label is an escString in which Graphviz also reads HTML entities.
    escaped = text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n") + '"'
