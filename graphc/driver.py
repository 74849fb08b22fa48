"""From a module to a plan: the whole compiler on one page.

    source ──front end──► Module ──differentiate──► ──place──► ──partition──► ──schedule──► Plan

Everything below `compile_module` is a named stage; each stage's graph can be looked at (`observe`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from graphc.errors import GraphcError
from graphc.graph import Graph, Node
from graphc.module import Module
from graphc.op import lost_extents, parse_rule
from graphc.ops.structure import Structural
from graphc.passes.base import Pass
from graphc.passes.pipeline import differentiation, distribution, partitioning, run_passes
from graphc.passes.schedule import schedule
from graphc.program import Program
from graphc.runtime.plan import Plan
from graphc.strategy import OneDevice, Strategy

Observe = Callable[[str, Pass, Graph], None]


def compile_module(
    module: Module,
    strategy: Strategy | None = None,
    *,
    peak: int | None = None,
    observe: Observe | None = None,
) -> Plan:
    """The plan of a module under a strategy (the module's own by default).

    peak: limit in bytes on what one device needs; G0406 where the plan is over it.
    observe(program name, pass, graph) sees the graph after every pass.
    Raises GraphcError for whatever in the program or the strategy can't be compiled.
    """
    start = time.perf_counter()
    strategy = strategy or module.strategy
    programs = {"init": _init_program(module.init)}
    for name, graph in (("train", module.train), ("evaluate", module.evaluate)):
        programs |= _compile(name, graph, strategy, observe)
    if peak is not None:
        _check_peak(programs, peak)
    return _plan(module, strategy, programs, time.perf_counter() - start)


def _compile(
    name: str, graph: Graph, strategy: Strategy, observe: Observe | None
) -> dict[str, Program]:
    """The program for a full batch, and the one for a short batch where there can be one."""
    seen = (lambda step, after: observe(name, step, after)) if observe else None
    graph = _with_ratios(graph) if not graph.objectives else graph
    graph = run_passes(graph, differentiation(), seen)
    placed = run_passes(graph, distribution(strategy), seen)
    programs = {name: schedule(run_passes(placed, partitioning(strategy), seen))}
    if unpaddable(graph) is None:
        short = run_passes(placed, partitioning(strategy, short=True))
        programs[f"{name}.short"] = schedule(short)
    return programs


def _init_program(graph: Graph) -> Program:
    """Initial values are computed once, on one device, and cut afterwards."""
    one = OneDevice()
    return schedule(run_passes(graph, [*distribution(one), *partitioning(one)]))


def unpaddable(graph: Graph) -> Node | None:
    """The first node that needs a dim of run-time length whole: no short batch can run then."""
    for node in graph:
        if node.op.source or isinstance(node.op, Structural) or not node.operands:
            continue
        types = [graph[x].tensor for x in node.operands]
        if any(t.extents for t in types):
            if lost_extents(parse_rule(node.op.dims(*types)), types, node.tensor):
                return node
    return None


def _with_ratios(graph: Graph) -> Graph:
    """Also output numerator and denominator of every result that is a quotient of scalars.

    A metric over several batches is then the sum of numerators over the sum of denominators,
    which is exact for batches of any size; a mean of means would not be.
    """
    outputs = dict(graph.outputs)
    for name, x in graph.outputs.items():
        node = graph[x]
        if node.op.denominator is not None and node.tensor.shape == ():
            below = node.op.denominator
            outputs[f"{name}/num"] = node.operands[1 - below]
            outputs[f"{name}/den"] = node.operands[below]
    return replace(graph, outputs=outputs)


def _check_peak(programs: dict[str, Program], limit: int) -> None:
    for name, program in programs.items():
        if program.peak_bytes > limit:
            raise GraphcError(
                "G0406",
                f"program '{name}' needs {program.peak_bytes} bytes on a device "
                f"({program.variable_bytes} of them variables), the limit is {limit}",
                help="cut variables with tensor_split(n), or the batch with accumulate(k)",
            )
