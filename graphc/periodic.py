"""Strategies whose replicas step alone: the program in which they meet, and its outer optimizer."""

from __future__ import annotations

from graphc.builder import Builder
from graphc.errors import GraphcError
from graphc.graph import Graph
from graphc.ops.optim import Optimizer
from graphc.passes.alone import meeting, with_outer
from graphc.passes.pipeline import Observer, partitioning, placing, run_passes
from graphc.passes.schedule import schedule
from graphc.program import Program
from graphc.runtime.plan import SYNC
from graphc.strategy import Periodic, Strategy, layout_of


def periodicity(strategy: Strategy) -> Periodic | None:
    """How often replicas that step alone meet, where the strategy says so."""
    how = layout_of(strategy).synchrony
    return how if isinstance(how, Periodic) else None


def prepared(train: Graph, strategy: Strategy) -> Graph:
    """The differentiated graph with the variables that meeting needs."""
    how = periodicity(strategy)
    return with_outer(train, outer_optimizer(how.outer)) if how and how.outer else train


def sync_programs(
    train: Graph, strategy: Strategy, observe: Observer | None = None
) -> dict[str, Program]:
    """The program 'sync', for a strategy whose replicas meet now and then."""
    how = periodicity(strategy)
    if how is None:
        return {}
    graph = meeting(train, layout_of(strategy), outer_optimizer(how.outer) if how.outer else None)
    graph = run_passes(graph, [*placing(strategy), *partitioning(strategy)], observe)
    return {SYNC: schedule(graph, exact=True)}


def outer_optimizer(text: str) -> Optimizer:
    """The optimizer that `nesterov(lr=0.7, momentum=0.9)` names. Raises G0306, and G01xx."""
    from graphc.frontend.evaluate import Evaluator
    from graphc.frontend.names import Scope
    from graphc.frontend.parse import parse_strategy
    from graphc.frontend.syntax import Call

    help = 'such as outer="nesterov(lr=0.7, momentum=0.9)"'
    factors = parse_strategy(text, "<outer>").factors
    if len(factors) == 1 and isinstance(factors[0], Call):
        made = Evaluator(Builder("outer")).evaluate(factors[0], Scope())
        if isinstance(made, Optimizer):
            return made
    raise GraphcError("G0306", f"outer={text!r} is no optimizer", help=help)
