"""A compiled step with all of its stages: what explanations and comparisons are read from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import cached_property

from graphc.analysis.traffic import StepExchange, exchanges
from graphc.compiler.driver import stages
from graphc.compiler.programs import resolved
from graphc.frontend.module import Module
from graphc.ir.graph import Graph
from graphc.passes.placing.alternatives import Alternatives
from graphc.strategies import OneDevice, Strategy, layout_of
from graphc.support.dataclass import dataclass


@dataclass(frozen=True)
class CompiledStep:
    """The graphs of one program, from the source to the one that is run.

    graphs: (pass, graph after it), first ('source', as written)
    """

    graphs: Sequence[tuple[str, Graph]]
    strategy: Strategy = field(default_factory=OneDevice)

    @property
    def graph(self) -> Graph:
        """The graph that is run."""
        return self.graphs[-1][1]

    @property
    def source(self) -> Graph:
        """The graph as it was written."""
        return self.graphs[0][1]

    @cached_property
    def placed(self) -> Graph | None:
        """The graph that every value has its placement in, before conversions are inserted."""
        return next((g for name, g in reversed(self.graphs) if name == "place"), None)

    @cached_property
    def first(self) -> dict[str, str]:
        """The pass that made each node; 'source' for one that was written."""
        first: dict[str, str] = {}
        for name, graph in self.graphs:
            for node in graph.nodes:
                first.setdefault(node, name)
        return first

    @cached_property
    def exchanges(self) -> dict[str, StepExchange]:
        """The collectives of the graph that is run, by node."""
        if any(n.needs for n in self.graph):
            return {}  # a graph in text form, before partition
        return {x.node.name: x for x in exchanges(self.graph)}

    @cached_property
    def alternatives(self) -> Alternatives | None:
        """The prices of other placements; None where nothing was placed."""
        if self.placed is None or not self.placed.mesh.axes:
            return None
        return Alternatives(self.placed, layout_of(resolved(self.strategy, self.placed)))

    def inserted(self) -> list[str]:
        """The nodes that passes have inserted, in order."""
        return [n.name for n in self.graph if n.because is not None]


def compiled_step(
    module: Module, strategy: Strategy | None = None, program: str = "train", bucket: int = 0
) -> CompiledStep:
    """A program of a module, compiled for a strategy, with all of its stages. Raises G0990."""
    graphs = list(stages(module, strategy, program, bucket))
    return CompiledStep(graphs, strategy or module.strategy)


def of_text(graph: Graph) -> CompiledStep:
    """A graph that was read from its text form."""
    return CompiledStep([("source", graph)])
