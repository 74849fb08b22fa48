"""What a picture of a graph shows: a box for each value and each result, an edge for each
operand."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import NamedTuple

from graphc.ir.graph import Graph, Node
from graphc.ops.collective import Conversion
from graphc.text.printer import (
    fields_text,
    placement_text,
    type_text,
    value_name,
    value_text,
)


class Kind(Enum):
    """What a box stands for, shown by its color."""

    INPUT = "input"
    VARIABLE = "variable"
    CONSTANT = "constant"
    COMPUTE = "compute"
    SPACE = "exchange over space"
    TIME = "exchange over time"
    END = "output, update"


class Style(NamedTuple):
    """The colors of a kind: of the box, and of its outline."""

    fill: str
    stroke: str


STYLES = {
    Kind.INPUT: Style("#e3effc", "#2f6fbf"),
    Kind.VARIABLE: Style("#fcf1d2", "#b9850b"),
    Kind.CONSTANT: Style("#f2f3f5", "#9aa2ad"),
    Kind.COMPUTE: Style("#ffffff", "#646d7a"),
    Kind.SPACE: Style("#fde3df", "#c93f33"),
    Kind.TIME: Style("#ebe3fb", "#7347c2"),
    Kind.END: Style("#ddf2e3", "#2a8749"),
}


class ScenePart(Enum):
    """The part of a step to which a value belongs, known from the scope that `differentiate`
    gave it."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


@dataclass(frozen=True)
class Box:
    """A box.

    lines:    its text
    tooltip:  everything that is known of it
    inserted: whether a pass made it
    """

    name: str
    lines: tuple[str, ...]
    tooltip: str
    kind: Kind
    part: ScenePart
    inserted: bool = False


@dataclass(frozen=True)
class Scene:
    """Boxes in topological order, and edges (from box, to box) by their indices."""

    title: str
    boxes: tuple[Box, ...]
    edges: tuple[tuple[int, int], ...]


def scene(graph: Graph) -> Scene:
    """The picture of a graph."""
    boxes = [_box(node) for node in graph]
    index = {node.name: i for i, node in enumerate(graph)}
    edges = [(index[x], index[node.name]) for node in graph for x in node.operands]
    for word, name, x, part in _ends(graph):
        edges.append((index[x], len(boxes)))
        part = part or boxes[index[x]].part
        boxes.append(Box(f"{word} {name}", (word, clean(name)), clean(name), Kind.END, part))
    mesh = f"   {graph.mesh}" if graph.mesh.axes else ""
    return Scene(clean(f"{graph.name}{mesh}"), tuple(boxes), tuple(edges))


def _ends(graph: Graph) -> list[tuple[str, str, str, ScenePart | None]]:
    ends: list[tuple[str, str, str, ScenePart | None]] = []
    ends += [("output", name, x, None) for name, x in graph.outputs.items()]
    ends += [("update", name, x, ScenePart.UPDATE) for name, x in graph.updates.items()]
    for o in graph.objectives:
        ends.append(("minimize", value_text(o.optimizer), o.loss, None))
    return ends


def _box(node: Node) -> Box:
    return Box(
        node.name, _lines(node), _tooltip(node), _kind(node), _part(node), node.because is not None
    )


def _kind(node: Node) -> Kind:
    match node.op:
        case Conversion(over="time"):
            return Kind.TIME
        case Conversion():
            return Kind.SPACE
        case op if op.source:
            return Kind.INPUT if op.source == "input" else Kind.VARIABLE
        case _:
            return Kind.COMPUTE if node.operands else Kind.CONSTANT


def _part(node: Node) -> ScenePart:
    match node.scope.split("/")[0]:
        case "grad":
            return ScenePart.BACKWARD
        case "update":
            return ScenePart.UPDATE
        case _:
            return ScenePart.FORWARD


def _lines(node: Node) -> tuple[str, ...]:
    """`%h`, `einsum "bk,kn->bn"`, `f32[batch=256,128]`, `{data:S(0)}`"""
    name, t = value_name(node.name), node.type
    bare = type_text(t.bare())
    lines = [name, bare] if node.op.source else [name, _call(node), bare]
    if t.placement.states:
        lines.append(placement_text(t.placement))
    return tuple(clean(line) for line in lines)


def _call(node: Node) -> str:
    """The op with the numbers and words among its attributes: `einsum bk,kn->bn`."""
    defaults = {f.name: f.default for f in fields(node.op)}  # type: ignore[arg-type]
    values = [
        value if isinstance(value, str) else value_text(value)
        for name, value in node.op.shown.items()
        if isinstance(value, str | int | float) and value != defaults[name]
    ]
    return " ".join([node.op.name, *values])


def _tooltip(node: Node) -> str:
    attributes = fields_text(node.op)
    lines = [
        f"{value_name(node.name)} : {type_text(node.type)}",
        f"= {node.op.name} {', '.join(map(value_name, node.operands))}".rstrip()
        + (f" {{{attributes}}}" if attributes else ""),
    ]
    if node.because:
        lines.append(f"because {node.because}")
    if node.scope:
        lines.append(f"scope {node.scope}")
    if node.origin:
        lines.append(f"from {node.origin}")
    return "\n".join(clean(clip(line, 400)) for line in lines)


def clean(text: str) -> str:
    """The text on one line, without characters that XML or terminals do not accept."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def clip(text: str, length: int) -> str:
    """The text with at most `length` characters; the rest becomes an ellipsis."""
    return text if len(text) <= length else text[: length - 1] + "…"
