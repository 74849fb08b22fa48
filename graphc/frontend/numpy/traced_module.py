"""From a function to the module that the compiler takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.frontend.module import Module
from graphc.frontend.numpy.trace import TracedStep, record
from graphc.support.caller import user_span
from graphc.support.errors import GraphcError
from graphc.support.random import checked_seed
from graphc.support.warn import warn


def traced_module(
    loss_fn: Callable[..., Any], params: Any, example_batch: Any, **options: Any
) -> tuple[Module, TracedStep]:
    """The module of a traced step, for training and for evaluation, and the trace itself. Without
    anything to minimize, both are the graph of evaluation. Raises G0617 for an empty batch."""
    train = record(loss_fn, params, example_batch, **options)
    if any(n.tensor.extents and 0 in n.tensor.shape[:1] for n in train.graph.inputs.values()):
        text = "the example batch is empty: a step takes batches of its size and shorter ones"
        help = "give a batch of the size that you train with"
        raise GraphcError("G0617", text, span=user_span(), help=help)
    evaluate = train.evaluation
    if evaluate is None:
        evaluate = record(loss_fn, params, example_batch, **{**options, "training": False}).graph
    for note in train.notes:
        warn(note)
    graph = train.graph if train.graph.objectives else evaluate
    module = Module(
        graph.name, graph, evaluate, train.first, seed=checked_seed(options.get("seed", 0)),
        returns=train.result.names if train.result else (), batch=train.batch_size,
    )  # fmt: skip
    return module, train
