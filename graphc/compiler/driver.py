"""From a module to a plan: the whole compiler on one page.

    source ──front end──► Module ──differentiate──► ──place──► ──partition──► ──schedule──► Plan

Every arrow is a list of passes in graphc.compiler.pipeline. `observe` is called with the graph
after each of them.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from functools import cache, partial

from graphc.compiler.evaluation import predicted, prediction, with_quotients
from graphc.compiler.periodic import periodicity, prepared, sync_programs
from graphc.compiler.pipeline import (
    differentiation,
    distribution,
    partitioning,
    run_passes,
    server_part,
    worker_part,
)  # fmt: skip
from graphc.frontend.module import Module
from graphc.ir.dims import lost_extents, parse_rule
from graphc.ir.graph import Graph, Node
from graphc.ir.placement import Split
from graphc.lowering.program.program import EVALUATE, PREDICT, Program
from graphc.lowering.schedule.schedule import schedule
from graphc.ops.source import Random
from graphc.passes.base import Pass
from graphc.passes.differentiation.gradient_orders import check_orders
from graphc.passes.differentiation.loss_checks import check_losses
from graphc.passes.keep_precision import check_kept
from graphc.passes.partitioning.worker_server_split import cut_of
from graphc.passes.placing.tile import untiled
from graphc.plan.determinism import determinism_of
from graphc.plan.plan import SERVER, SYNC, WORKER, Plan, PlannedVariable
from graphc.plan.reports import PlannedReport
from graphc.strategies import (
    NO_CUT,
    Asynchronous,
    MeshLayout,
    OneDevice,
    Strategy,
    layout_of,
    named_parts,
)  # fmt: skip
from graphc.support.errors import GraphcError, GraphcWarning, did_you_mean
from graphc.support.gc_pause import collector_paused
from graphc.support.lazy_map import LazyMap, existing, joined, renamed
from graphc.support.no_fork import no_fork
from graphc.verify.law import of_each_kind

Observe = Callable[[str, Pass, Graph], None]
Programs = Mapping[str, Program]
PROGRAMS = ("train", EVALUATE, PREDICT)
ONE = OneDevice()  # for programs that run on one device under every strategy


def compile_module(
    module: Module,
    strategy: Strategy | None = None,
    *,
    bucket: int = 0,
    observe: Observe | None = None,
    check_replicas: bool = False,
) -> Plan:
    """The plan of a module under a strategy (by default, the one that the module names).

    Its programs are 'init', 'train' and 'evaluate', 'predict' if there is something to predict,
    and, if the step can run batches that are not full, 'train.short', 'evaluate.short' and
    'predict.short'. A plan of an asynchronous strategy has 'worker', 'server.0', 'server.1', ...
    instead of 'train'. The plan's strategy contains the cuts that the compiler chose.

    bucket:         small sums over devices are joined to all-reduces of up to this many bytes;
                    0 keeps each by itself, except over links slower than memory
    check_replicas: steps fail (G0536) if replicas disagree on a variable of which only the first
                    one's value is kept

    Raises GraphcError for whatever in the program or the strategy can't be compiled.
    """
    start = time.perf_counter()
    strategy = strategy or module.strategy
    _warn_without_batch(module.train, strategy)
    check_losses(module.train)
    check_orders(module.train, strategy)
    _check_names(module.train, strategy)
    with collector_paused(), no_fork():
        programs, train, strategy, exact, reports = _compile(
            module, strategy, bucket, observe, check_replicas
        )
    variables = {
        v.name: PlannedVariable(v.kind, v.of, v.fill, v.aggregation, v.on)
        for v in train.variables.values()
    }
    meets = periodicity(strategy) if module.learns else None
    meta = {
        "exact": exact,
        "compile_seconds": time.perf_counter() - start,
        "duration": asdict(module.duration) if module.duration else None,
        "fingerprint": train.fingerprint(),
        "determinism": determinism_of(strategy, trained(programs)).plain(),
        "grid": next((str(p.strategy) for p in named_parts(strategy) if p.layout.grid), ""),
        "every": meets.every if meets else 0,
        "untiled": untiled(train, layout_of(strategy)),
        "seed": module.seed,
        "learns": module.learns,
        "random": any(isinstance(node.op, Random) for node in train),
    }
    how = asynchrony(strategy) if module.learns else None
    return Plan(
        module.name, programs, variables, str(strategy), _data(module), meta, how, reports=reports
    )  # fmt: skip


def trained(programs: Programs) -> list[Program]:
    """The programs that make an update, of those that are compiled by now."""
    compiled = existing(programs).items()
    return [p for name, p in compiled if not name.startswith(("init", EVALUATE, PREDICT))]


def _warn_without_batch(graph: Graph, strategy: Strategy) -> None:
    """Warn if the strategy splits the batch, but the step has no batch to split."""
    inputs = list(graph.inputs.values())
    if layout_of(strategy).batch and inputs and not any(n.tensor.extents for n in inputs):
        warning = GraphcError(
            "G0405",
            f"{strategy} splits the batch, but no input has a batch dim: every device does all of "
            "the work",
            span=inputs[0].origin,
            help="name the first dim, as in x: f32[batch, 64]; "
            "in Python, take the batch size from x.shape[0] and not from len(x)",
        )
        warnings.warn(GraphcWarning(warning.render().replace("error", "warning", 1)), stacklevel=3)


def _check_names(graph: Graph, strategy: Strategy) -> None:
    """Raise G0404 if the strategy names a variable or a scope that the step does not have."""
    check_kept(graph, layout_of(strategy).kept, strategy)
    names = list(graph.variables)
    for rule in layout_of(strategy).variables:
        if rule.glob != NO_CUT and not any(fnmatchcase(v, rule.glob) for v in names):
            hint = did_you_mean(rule.glob, names) or f"it has: {', '.join(names[:20])}"
            message = f"'{rule.glob}' in {strategy} matches no variable of the step"
            raise GraphcError("G0404", message, help=hint)


def _compile(
    module: Module,
    strategy: Strategy,
    bucket: int,
    observe: Observe | None,
    check_replicas: bool,
) -> tuple[Programs, Graph, Strategy, dict[str, str], dict[str, PlannedReport]]:
    """Compile all programs of a module.

    Returns the programs, the differentiated graph, the strategy with all choices written out, for
    each mode the first node that needs the whole batch ('' if there is none), and how the results
    of evaluation are put together.
    """
    layout = layout_of(strategy)
    passes = differentiation(check_replicas, layout.precision, layout.kept)
    train = run_passes(module.train, passes, _observer(observe, "train"))
    if module.learns:
        train = prepared(train, strategy)
    graph, reports = with_quotients(module.evaluate, module.batch)
    graph = run_passes(graph, differentiation(kept=layout.kept), _observer(observe, EVALUATE))
    graph = replace(graph, variables=train.variables)  # programs share them, slots included
    wanted, exact = predicted(graph, reports, module.returns), dict[str, str]()
    first: dict[str, Program] = {"init": _init_program(module.init)}
    if module.learns:
        first |= sync_programs(train, strategy, _observer(observe, SYNC))
        updates, strategy = _updates(train, strategy, bucket, observe, exact)
    if _is_plain(strategy):
        results, exact[EVALUATE] = _later(EVALUATE, graph, strategy, bucket, observe)
    else:
        results, strategy, exact[EVALUATE] = _lowered(EVALUATE, graph, strategy, bucket, observe)
    arrays: Programs = {}
    if wanted and set(wanted) == set(graph.outputs):
        arrays = renamed(results, EVALUATE, PREDICT)
    elif wanted:  # a part of 'evaluate': what could be wrong with it has been found
        some = prediction(graph, wanted)
        arrays, exact[PREDICT] = _later(PREDICT, some, strategy, bucket, observe)
    if module.learns:
        return joined(first, updates, results, arrays), train, strategy, exact, reports
    if observe is None and module.train is module.evaluate:
        steps = renamed(results, EVALUATE, "train")
    else:
        steps, exact["train"] = _later("train", train, strategy, bucket, observe)
    return joined(first, arrays, results, steps), train, strategy, exact, reports


def _updates(
    train: Graph, strategy: Strategy, bucket: int, observe: Observe | None, exact: dict[str, str]
) -> tuple[Programs, Strategy]:
    """The programs that make an update, and the strategy with all choices written out."""
    how = asynchrony(strategy)
    name = "train" if how is None else WORKER
    if how is None:
        lowered, strategy, exact[name] = _lowered(name, train, strategy, bucket, observe)
    else:
        lowered, strategy, exact[name] = _parts(train, strategy, how, bucket, observe)
    return lowered, strategy


def _is_plain(strategy: Strategy) -> bool:
    """Whether the strategy leaves nothing to place. Then programs can be compiled when they are
    first run, as no error of the user's can come up."""
    return replace(layout_of(strategy), precision=None, kept=()) == MeshLayout()


def _lowered(
    name: str, graph: Graph, strategy: Strategy, bucket: int, observe: Observe | None
) -> tuple[Programs, Strategy, str]:
    """The programs NAME and NAME.short of a graph, the strategy with all choices written out,
    and the first node that needs the whole batch (or ''). In a plain strategy, NAME.short is
    compiled when it is first run."""
    seen = _observer(observe, name)
    placed = run_passes(
        graph, distribution(strategy, name in (EVALUATE, PREDICT)), seen, known=graph
    )
    strategy = resolved(strategy, placed)
    full = run_passes(placed, partitioning(strategy, bucket=bucket), seen, known=placed)
    programs = {name: schedule(full, exact=True)}
    needs_whole = unpaddable(graph)
    if needs_whole is not None:
        return programs, strategy, needs_whole.name
    short = f"{name}.short"
    if _is_plain(strategy):
        return LazyMap(programs, {short: _short(placed, strategy, bucket)}), strategy, ""
    return programs | {short: _short(placed, strategy, bucket)()}, strategy, ""


def _short(placed: Graph, strategy: Strategy, bucket: int) -> Callable[[], Program]:
    """The program for batches that are not full."""

    def short() -> Program:
        with collector_paused(), no_fork():
            passes = partitioning(strategy, True, bucket)
            return schedule(run_passes(placed, passes, known=placed))

    return short


def _later(
    name: str, graph: Graph, strategy: Strategy, bucket: int, observe: Observe | None
) -> tuple[Programs, str]:
    """The programs NAME and NAME.short of a graph, both compiled when one of them is first run, or
    now if somebody observes."""
    if observe is not None:
        programs, _, whole = _lowered(name, graph, strategy, bucket, observe)
        return programs, whole
    needs_whole = unpaddable(graph)
    names = (name,) if needs_whole else (name, f"{name}.short")

    @cache
    def lowered() -> Programs:
        with collector_paused(), no_fork():
            return _lowered(name, graph, strategy, bucket, None)[0]

    waiting = {x: partial(lambda x: lowered()[x], x) for x in names}
    return LazyMap({}, waiting), needs_whole.name if needs_whole else ""


def asynchrony(strategy: Strategy) -> Asynchronous | None:
    """The asynchronous part of the strategy (workers, servers, staleness), if there is one."""
    how = layout_of(strategy).synchrony
    return how if isinstance(how, Asynchronous) else None


def _parts(
    train: Graph, strategy: Strategy, how: Asynchronous, bucket: int, observe: Observe | None
) -> tuple[Programs, Strategy, str]:
    """The program of the workers, which the rest of the strategy distributes, and one for each
    server, which is one device."""
    _warn_of_idle(train, how)
    graph = run_passes(train, worker_part(), _observer(observe, WORKER))
    lowered, strategy, exact = _lowered(WORKER, graph, strategy, bucket, observe)
    programs = dict(lowered)
    for number in range(how.servers):
        name = f"{SERVER}.{number}"
        graph = run_passes(train, server_part(how.servers, number), _observer(observe, name))
        seen = _observer(observe, name)
        # Rows of tables are sent for the examples that there are: such a program runs any number.
        short = any(n.type.extents for n in graph)
        placed = run_passes(graph, [*distribution(ONE), *partitioning(ONE, short)], seen)
        programs[name] = schedule(placed, exact=not short)
    return programs, strategy, exact


def _warn_of_idle(train: Graph, how: Asynchronous) -> None:
    """Warn of servers without variables, and of workers that the staleness bound keeps waiting."""
    idle = sum(not names for names in cut_of(train).variables_of(how.servers))
    if idle:
        _warn(
            "G0476",
            f"{idle} of {how.servers} servers own no variable",
            "variables whose updates read each other stay together; use fewer servers",
        )
    if how.staleness is not None and how.workers > how.staleness + 1:
        _warn(
            "G0475",
            f"with staleness={how.staleness}, only {how.staleness + 1} of {how.workers} workers "
            "can compute at a time: each push on its way makes the others staler by one",
            f"staleness={how.workers - 1} lets all of them work, or use fewer workers",
        )


def _warn(code: str, message: str, help: str) -> None:
    text = GraphcError(code, message, help=help).render().replace("error", "warning", 1)
    warnings.warn(GraphcWarning(text), stacklevel=3)


def stages(
    module: Module, strategy: Strategy | None, program: str, bucket: int = 0
) -> Iterator[tuple[str, Graph]]:
    """(pass name, graph after it) for every pass of one program; first ('source', as written).

    bucket: see `compile_module`. Of an asynchronous strategy, 'train' is the worker's program.
    Raises G0990 for an unknown one.
    """
    graph = module.evaluate if program in (EVALUATE, PREDICT) else module.train
    if program == "train" and asynchrony(strategy or module.strategy):
        program = WORKER
    graphs: list[tuple[str, Graph]] = [("source", graph)]

    def observe(name: str, step: Pass, after: Graph) -> None:
        known.add(name)
        if name == program or (name == "train" and program not in (*PROGRAMS, SYNC)):
            graphs.append((step.name, after))

    known: set[str] = set()
    compile_module(module, strategy, bucket=bucket, observe=observe)
    if program not in known:
        message = f"there is no program '{program}'"
        raise GraphcError("G0990", message, help=f"there are: {', '.join(sorted(known))}")
    yield from graphs


def resolved(strategy: Strategy, placed: Graph) -> Strategy:
    """The strategy with every choice that the pass `place` made written out."""
    if not layout_of(strategy).choose:
        return strategy
    result: Strategy = OneDevice()
    for axis, part, layout in named_parts(strategy):
        cuts = [
            (v.name, state.dim)
            for v in placed.variables.values()
            if v.kind == "param" and isinstance(state := v.type.placement[axis], Split)
        ]
        result = result * (part.with_cuts(tuple(cuts)) if layout.choose else part)
    return result


def unpaddable(graph: Graph) -> Node | None:
    """The first node that needs the whole of a run-time dim: short batches can't be run with it."""
    for node in of_each_kind(graph, graph):
        if node.op.source or not node.operands:
            continue
        types = [graph[x].tensor for x in node.operands]
        if any(t.extents for t in types) and lost_extents(
            parse_rule(node.op.dims(*types)), types, node.tensor
        ):
            return node
    return None


def _data(module: Module) -> dict[str, object]:
    """The data specifications as plain values."""
    keep = ("kind", "path", "batch", "shuffle_seed", "shard")
    return {name: {k: getattr(spec, k) for k in keep} for name, spec in module.data.items()}


def _observer(observe: Observe | None, name: str) -> Callable[[Pass, Graph], None] | None:
    return (lambda step, after: observe(name, step, after)) if observe else None


def _init_program(graph: Graph) -> Program:
    """The program of the first values. They are computed once, on one device, and split
    afterwards."""
    return schedule(run_passes(graph, [*distribution(ONE), *partitioning(ONE)]), exact=True)
