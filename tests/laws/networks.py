"""A few models of known structure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from laws.recipe import BATCH
from laws.simulate import evaluate, simulate

from graphc.autodiff.reverse_mode import gradients
from graphc.compiler.pipeline import distribution, partitioning, run_passes
from graphc.ir.builder import Builder
from graphc.ir.graph import Graph, Variable
from graphc.ir.op import op_named
from graphc.ir.types import F32, TensorType
from graphc.passes.cleanup import Cse, Dce, FoldConstants, Simplify
from graphc.strategies import parse_strategy


def mlp(widths: Sequence[int], batch: int = 24, bias: bool = True) -> Graph:
    """A step of a network `widths[0] -> ... -> widths[-1]` with tanh, by plain descent."""
    f = Builder("mlp")
    read = op_named("input")(source_name="x")  # type: ignore[call-arg]
    h = f.add(read, type=TensorType((batch, widths[0]), F32, (BATCH, None)), name="x")
    params = []
    for i, (n, m) in enumerate(pairwise(widths)):
        params.append(f.declare(Variable(f"w{i}", TensorType((n, m), F32))))
        h = f.einsum(h, params[-1], spec="bk,kn->bn")
        if bias:
            params.append(f.declare(Variable(f"b{i}", TensorType((m,), F32))))
            h = h + params[-1]
        h = f.tanh(h)
    loss = f.mean(h * h)
    f.outputs["loss"] = loss.name
    found = gradients(f, loss, [p.name for p in params])
    for p in params:
        gradient = found[p.name]
        assert gradient is not None
        f.updates[p.name] = (p - gradient * 0.1).name
    return run_passes(f.build(), [FoldConstants(), Simplify(), Cse(), Dce()])


def under(graph: Graph, strategy: str, short: bool = False) -> Graph:
    """The graph that every rank runs under a strategy."""
    parsed = parse_strategy(strategy)
    return run_passes(graph, [*distribution(parsed), *partitioning(parsed, short)])


NETWORKS = (
    ((8, 16, 4), 'tensor_split(2, {"w0": 1, "w1": 0})'),
    ((6, 9, 5), 'tensor_split(3, {"w0": 0, "w1": 1})'),
    ((6, 8, 4), "mirrored(3) * accumulate(2)"),
    ((6, 8, 4), "mirrored(2) * tensor_split(2)"),
    ((6, 8, 4), "multi_worker_mirrored(2, 2) * accumulate(2)"),
    ((6, 9, 5), 'multi_worker_mirrored(2, 3, reduce="tree") * tensor_split(2)'),
    ((6, 8, 4), 'mirrored(2, axis="host", link="network") * central_storage(2)'),
    ((6, 8, 4), "central_storage(3)"),
    ((6, 8, 4), "parameter_server(4, 2)"),
    ((6, 8, 4), "parameter_server(3, 3) * accumulate(2)"),
    ((6, 8, 4), "mirrored(2) * central_storage(2)"),
    ((6, 8, 4), 'parameter_server(2, 2) * tensor_split(2, {"w*": 1})'),
    ((6, 8, 4), "central_storage(2) * parameter_server(2, 2)"),
)  # fmt: skip


def check_network(widths: Sequence[int], strategy: str) -> None:
    """Raise AssertionError unless a network does the same under a strategy as on one device."""
    graph = mlp(widths, batch=8)
    rng = np.random.default_rng(0)
    inputs = {"x": rng.normal(size=(8, widths[0])).astype(np.float32)}
    variables = {
        k: rng.normal(0, 0.5, v.type.shape).astype(np.float32) for k, v in graph.variables.items()
    }
    want, _ = evaluate(graph, inputs, variables)
    found = simulate(under(graph, strategy), {"batch": 8}, inputs, variables)
    for name, value in want.variables.items():
        assert np.allclose(found.variables[name], value, atol=1e-5), f"{strategy}: {name}"
