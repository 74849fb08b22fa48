"""A warning about batches that are large in proportion to the data."""

from __future__ import annotations

import warnings
from math import prod

from graphc.plan.plan import Plan
from graphc.support.errors import GraphcError, GraphcWarning


def replicas(plan: Plan) -> int:
    """Into how many shards the batch is split over the devices."""
    program = plan.training
    batch = next((t for t in program.inputs.values() if t.extents), None)
    if batch is None:
        return 1
    dim = next(d for d in range(batch.rank) if batch.extent(d))
    axes = [program.mesh.axis(a) for a in batch.placement.splits(dim)]
    return prod(a.size for a in axes if a.over == "space")


FEWEST_UPDATES, LARGEST_PART = 20, 0.1  # of an epoch, and of the data


def warn_of_proportion(plan: Plan, examples: int, batch: int) -> None:
    """Warn if accumulation makes a batch with few updates, or of a large share of the data."""
    turns, updates = plan.mesh.turns, -(-examples // batch)
    if plan.mesh.leaves is not None:  # leaves are there for the bits, not for a larger batch
        return
    if turns < 2 or (updates >= FEWEST_UPDATES and batch <= LARGEST_PART * examples):
        return
    part = min(batch, examples) / examples if examples else 1.0
    warning = GraphcError(
        "G0620",
        f"an epoch of {examples} examples has {updates} update{'s' * (updates != 1)}: the batch "
        f"of {batch}, in {turns} microbatches, is {part:.0%} of the data",
        help=f"a smaller batch makes more updates; fewer than {FEWEST_UPDATES} an epoch, or a "
        f"batch over {LARGEST_PART:.0%} of the data, seldom train well",
    )
    warnings.warn(GraphcWarning(warning.render().replace("error", "warning", 1)), stacklevel=3)
