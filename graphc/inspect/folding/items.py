"""What there is to draw of a graph: its values, and its results."""

from __future__ import annotations

from graphc.inspect.scene import Kind, ScenePart, ends_of, kind_of, part_of
from graphc.ir.graph import Graph, Node
from graphc.support.dataclass import dataclass

EXCHANGED = (Kind.SPACE, Kind.TIME)


@dataclass(frozen=True, slots=True)
class Item:
    """A value, or a result: an output, an update or a loss.

    operands: the indices of the items that it takes
    carried:  whether it is drawn on an edge: a constant, or a value with the entries of its operand
    source:   where the value that it has the entries of comes from: itself unless it is carried;
              -1 for a constant
    """

    name: str
    kind: Kind
    part: ScenePart
    operands: tuple[int, ...]
    carried: bool
    source: int
    node: Node | None = None


def items_of(graph: Graph) -> list[Item]:
    """The items of a graph in topological order, results last."""
    index = {name: i for i, name in enumerate(graph.nodes)}
    items: list[Item] = []
    for i, node in enumerate(graph):
        operands = tuple(index[x] for x in node.operands)
        kind = kind_of(node)
        exchanged = kind in EXCHANGED and not node.op.same_entries
        outside = bool(node.op.source) or exchanged  # what is exchanged is always seen
        constant = not outside and all(items[x].source < 0 for x in operands)
        carried = constant or (node.op.same_entries and len(operands) == 1)
        source = (-1 if constant else items[operands[0]].source) if carried else i
        kind = Kind.CONSTANT if constant else kind
        items.append(Item(node.name, kind, part_of(node), operands, carried, source, node=node))
    for end in ends_of(graph):
        x = index[end.value]
        part = end.part or items[x].part
        name = f"{end.word} {end.name}"
        items.append(Item(name, Kind.END, part, (x,), False, len(items)))
    return items


def variables_served(graph: Graph, items: list[Item]) -> list[str | None]:
    """The variable whose update each item is for: "" if it is for several, or for an output; None
    if nothing depends on it. What is for a slot is for its variable."""
    serves: list[str | None] = [None] * len(items)
    for i, end in enumerate(ends_of(graph), len(graph.nodes)):
        written = graph.variables.get(end.name) if end.word == "update" else None
        serves[i] = (written.of or written.name) if written is not None else ""
    for i in reversed(range(len(items))):
        mine = serves[i]
        if mine is not None:
            for x in items[i].operands:
                serves[x] = _both(serves[x], mine)
    return serves


def gradients_served(graph: Graph, items: list[Item]) -> list[str]:
    """The variable whose complete gradient each value is computed for, and nothing else; or ""."""
    serves: list[str | None] = [None] * len(items)
    for i in reversed(range(len(items))):
        node = items[i].node
        if node is None or items[i].part is ScenePart.UPDATE or node.op.completes:
            mine = str(node.op.attributes.get("of", "")) if node else ""
            serves[i] = mine
        for x in items[i].operands:
            serves[x] = _both(serves[x], serves[i] or "")
    return [name or "" for name in serves]


def sent_later(items: list[Item]) -> list[bool]:
    """Whether what each value of the backward part becomes is exchanged before it is complete."""
    later = [False] * len(items)
    for i in reversed(range(len(items))):
        item = items[i]
        if item.part is ScenePart.BACKWARD:
            sent = later[i] or (item.kind in EXCHANGED and not item.carried)
            for x in item.operands:
                later[x] = later[x] or sent
    return later


def _both(a: str | None, b: str) -> str:
    return b if a is None or a == b else ""
