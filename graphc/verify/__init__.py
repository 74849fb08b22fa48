"""The laws of the IR, checked after every pass, in production too.

A graph that breaks one is a defect of graphc (or of a hand-written text): the `VerifyError` says
which law, at which node, with the text around it and the source line. A law is a function that
yields complaints; its docstring is the law.
"""

from __future__ import annotations

from graphc.ir.graph import Graph
from graphc.support.errors import VerifyError
from graphc.text import print_nodes
from graphc.text.printer import type_text, value_name
from graphc.verify.law import STAGES, Complaint, Law, Stage, Subject
from graphc.verify.placed import LAWS as PLACED
from graphc.verify.structure import LAWS as STRUCTURE

# In this order: a law may rely on those before it.
LAWS: tuple[Law, ...] = (*STRUCTURE, *PLACED)


def verify(graph: Graph, stage: Stage = "any", known: Graph | None = None) -> None:
    """Raise VerifyError (G091x, G092x) at the first law that the graph breaks.

    stage: 'placed' for a graph after partition, where every operand's placement must be one that
    its op can run with; 'looped' for one whose loops over turns are told apart; 'any' for a graph
    before that.
    known: a graph that was verified; nodes that stand in it too are not asked again whether their
    types follow from their ops.
    """
    subject = Subject(graph, known)
    for law in LAWS:
        if STAGES.index(law.stage) <= STAGES.index(stage):
            for complaint in law.check(subject):
                raise _error(law, graph, complaint)


def complaints(graph: Graph, stage: Stage = "any") -> list[VerifyError]:
    """Every complaint of the first law that the graph breaks."""
    subject = Subject(graph)
    for law in LAWS:
        if STAGES.index(law.stage) <= STAGES.index(stage):
            found = [_error(law, graph, c) for c in law.check(subject)]
            if found:
                return found
    return []


def laws_table() -> str:
    """The laws as a Markdown table, for spec/ir.md."""
    rows = [f"| {law.code} | {law.stage} | {law.text} |" for law in LAWS]
    return "\n".join(["| code | stage | law |", "| --- | --- | --- |", *rows])


def _error(law: Law, graph: Graph, complaint: Complaint) -> VerifyError:
    node = graph.nodes.get(complaint.node)
    message = complaint.message
    if node is not None:
        message += "\n" + print_nodes(graph, complaint.node)
    labels = tuple(
        (x.origin, f"{value_name(x.name)} is {type_text(x.type)}")
        for x in (graph.nodes.get(name) for name in (node.operands if node else ()))
        if x is not None and x.origin is not None and node is not None and x.origin != node.origin
    )
    span = node.origin if node else None
    return VerifyError(law.code, message, span=span, labels=labels, help=complaint.help)


__all__ = ["LAWS", "Law", "Stage", "complaints", "laws_table", "verify"]
