"""The gradient of a random model against differences of its loss."""

from __future__ import annotations

import numpy as np
from laws.generator import data_for, make, recipe
from laws.simulate import Array, evaluate

from graphc.ir.types import F64

BATCH = 5
STEP = 1e-5
NEAR = 1e-5  # of the terms that the slope is the sum of
ROUNDING = 1e-9  # of the loss, divided by the step
BLIND = ("detached",)  # steps whose gradient is, as it is meant, not the slope


class WrongGradient(AssertionError):
    """A gradient that is not the slope of the loss."""


def check_gradient(seed: int, kinds: tuple[str, ...] = ()) -> bool:
    """Whether the recipe of that seed has a slope to check. Raises WrongGradient."""
    drawn = recipe(seed, kinds=kinds)
    if any(s.kind in BLIND for s in drawn.steps):
        return False
    data = data_for(drawn, BATCH, raw=True)
    if data is None:
        return False
    graph = make(drawn, BATCH, F64, raw=True).graph
    rng = np.random.default_rng(seed)
    grads = {w: data.truth.outputs[w] for w in data.variables if w in data.truth.outputs}
    along = {w: rng.normal(size=g.shape) for w, g in grads.items()}

    def loss(size: float) -> float:
        moved: dict[str, Array] = {w: data.variables[w] + size * d for w, d in along.items()}
        with np.errstate(all="ignore"):
            results, _ = evaluate(graph, data.inputs, {**data.variables, **moved})
        return float(results.outputs["loss"])

    slope = (loss(STEP) - loss(-STEP)) / (2 * STEP)
    terms = [g * along[w] for w, g in grads.items()]
    found, size = (sum(float(f(t).sum()) for t in terms) for f in (np.asarray, np.abs))
    if not abs(slope - found) <= NEAR * (size + abs(loss(0))) + ROUNDING:
        raise WrongGradient(f"seed {seed}: the slope is {slope}, the gradient says {found}")
    return True
