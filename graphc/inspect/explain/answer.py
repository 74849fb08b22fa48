"""What `graphc why` and `trainer.why` answer: a table of nodes, or a few nodes in full."""

from __future__ import annotations

from typing import Any

from graphc.inspect.explain.compiled import CompiledStep
from graphc.inspect.explain.explanation import explain
from graphc.inspect.explain.find import find_nodes
from graphc.inspect.explain.in_words import in_json, in_words, table
from graphc.support.dataclass import dataclass

MANY = 4  # nodes that are explained in full


@dataclass(frozen=True, repr=False)
class Answer:
    """Why nodes are in a compiled step. It prints itself.

    node:       what was asked for; without it, the nodes that passes have inserted are listed
    everything: list those, too, that send nothing
    one:        how to ask for one node
    """

    step: CompiledStep
    names: tuple[str, ...]
    node: str | None
    everything: bool
    one: str

    def __str__(self) -> str:
        if self.node is None:
            return table(self.step, self.names, self.everything)
        if len(self.names) <= MANY:
            return "\n\n".join(in_words(explain(self.step, x)) for x in self.names)
        listed = table(self.step, self.names, True)
        return f"{listed}\n\n{len(self.names)} nodes; {self.one} explains one"

    __repr__ = __str__  # so that it shows itself where it is typed

    def as_json(self) -> list[dict[str, Any]]:
        """The explanations as plain values (see spec/why.md)."""
        return [in_json(self.step, x) for x in self.names]


def answer(step: CompiledStep, node: str | None, everything: bool, one: str) -> Answer:
    """Why a node, or each inserted node, is there. Raises G0993 if there is no such node."""
    names = find_nodes(step.graph, node) if node else step.inserted()
    return Answer(step, tuple(names), node, everything, one)
