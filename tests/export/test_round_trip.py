"""Law: a step that is exported to ONNX gives there what it gives here.

Random functions (laws/programs) are exported once and run on batches of every length. ONNX's own node
cases (onnx_nodes) are traced, exported again, and must give what ONNX says.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from export.onnx_runs import Arrays, differs, run_reference
from laws.programs import judge
from laws.programs.grow import grow
from laws.programs.program import Program
from onnx_nodes import cases as nodes
from onnx_nodes.judge import node_batch, node_step
from onnx_nodes.test_nodes import LEAST, known

import graphc
from graphc import nn, optim
from graphc.api import traced_module
from graphc.export.model import onnx_model
from graphc.export.onnx_file import PredictionGraph
from graphc.support.errors import GraphcError
from graphc.testing.compute import evaluate

# -- random functions ------------------------------------------------------------------------------


def traced(program: Program, examples: int) -> tuple[Any, Any, Arrays]:
    """The module of a program for so many examples, its variables, and the batch in its dtypes."""
    params, batch = program.data(examples)
    function = program.function(nn=nn, F=np.float32)
    module, step = traced_module(
        function, params, batch, optimizer=optim.sgd(1.0), whole=program.whole
    )
    inputs, given = module.evaluate.inputs, step.inputs(batch)
    fed = {k: np.asarray(given[k]).astype(n.type.dtype.numpy) for k, n in inputs.items()}
    return module, {k: np.asarray(v) for k, v in step.values.items()}, fed


def compared(seed: int) -> int:
    """The number of results that were compared, over batches of several lengths."""
    program, count = grow(seed), 0
    sizes = dict.fromkeys(program.sizes)
    module, values, _ = traced(program, program.sizes[0])
    predicts = PredictionGraph.of_module(module, list(module.evaluate.outputs))
    model = onnx_model(predicts.graph, values, not predicts.batch)
    for n in sizes:
        if predicts.batch in (0, n):
            exact, _, fed = traced(program, n)
            every = evaluate(exact.evaluate, {**fed, **values})
            want = {name: every[x] for name, x in exact.evaluate.outputs.items()}
            taken = {x.name for x in model.graph.input}
            have = run_reference(model, {k: x for k, x in fed.items() if k in taken})
            most = max(map(_largest, every.values())) * float(
                judge.HALF if program.coarse else judge.SINGLE
            )
            for name, x in want.items():
                text = differs(have[name], x) and _apart(have[name], x, most)
                assert not text, f"seed {seed}, {n} examples: {name}: {text}"
                count += 1
    return count


def _largest(x: Any) -> float:
    a = np.asarray(x, np.float64)
    return float(np.abs(a[np.isfinite(a)]).max(initial=4.0))


def _apart(have: Any, want: Any, most: float) -> str:
    """How floats differ by more than `most`, or in where they are NaN; or nothing."""
    a, b = np.asarray(have, np.float64), np.asarray(want, np.float64)
    fine = have.dtype == want.dtype and have.shape == want.shape and want.dtype.kind not in "iub"
    same = fine and np.array_equal(np.isnan(a), np.isnan(b))
    with np.errstate(invalid="ignore"):
        near = same and (np.isnan(a) | (a == b) | (np.abs(a - b) <= most)).all()
    return "" if near else f"{have}, not {want}"


def tried(seeds: range) -> int:
    count = 0
    for seed in seeds:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                count += compared(seed)
            except GraphcError as error:  # a function that is not for batches of this length
                assert error.code == "G0203"
    return count


@pytest.mark.parametrize(
    "first", [pytest.param(0, marks=pytest.mark.ci), pytest.param(20, marks=pytest.mark.slow)]
)
def test_random_functions_give_the_same_in_onnx(first: int) -> None:
    seeds = range(first, 20 if first == 0 else 600)
    assert tried(seeds) >= 4 * len(seeds)


# -- ONNX's own cases ------------------------------------------------------------------------------


def round_trip(case: nodes.Case) -> str:
    """What is wrong with the results of a case that went through graphc; or nothing."""
    batch = node_batch([case])
    module, step = traced_module(
        node_step([case]), {"w": np.zeros(1, np.float32)}, batch, optimizer=graphc.optim.sgd(0.1),
        whole=["*"], data_dtype="float64",
    )  # fmt: skip
    names = [f"0_{i}" for i in range(len(case.results)) if f"0_{i}" in module.evaluate.outputs]
    predicts = PredictionGraph.of_module(module, names)
    values = {k: np.asarray(v) for k, v in step.values.items()}
    model = onnx_model(predicts.graph, values)
    taken = {x.name for x in model.graph.input}
    found = run_reference(model, {k: np.asarray(x) for k, x in batch.items() if k in taken})
    return next(
        filter(None, (nodes.differs(found[n], w, case) for n, w in _wanted(names, case))), ""
    )


def _wanted(names: list[str], case: nodes.Case) -> Iterator[tuple[str, Any]]:
    return ((name, case.results[int(name[2:])]) for name in names)


@pytest.mark.slow
def test_node_cases_hold_after_a_round_trip() -> None:
    listed = known()
    whole = [c for c in nodes.cases() if c.name not in listed]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {c.name: text for c in whole if (text := round_trip(c))}
    assert not found and len(whole) >= LEAST
