"""`x[np.where(mask)]` is `x[mask]`; other uses of the places of a traced mask are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.support.errors import GraphcError

RNG = np.random.default_rng(0)
PARAMS = {"w": RNG.normal(size=(4, 3)), "v": np.array([-1.5, 0.5, -0.25, 2.0, 0.75])}
BATCH = {"x": RNG.normal(size=(6, 3))}
Places = Callable[[Any], Any]

PLACES: dict[str, Places] = {
    "where": np.where, "nonzero": np.nonzero, "method": lambda mask: mask.nonzero(),
    "apart": lambda mask: (*np.where(mask),),
}  # fmt: skip


def written(p: Any, b: Any, at: Places) -> Any:
    x = b["x"] * p["w"][0]
    x[at(x < 0)] = 0.5
    return (x * x).sum()


def computed(p: Any, b: Any, at: Places) -> Any:
    x = p["w"] * 2.0
    i = at(x > 0)
    x[i] = np.log(x[i])
    x[0] = 7.0  # the mask is that of before
    return (x**2).mean() + np.mean(x[i])


def rows(p: Any, b: Any, at: Places) -> Any:
    return (p["w"][at(p["w"][:, 0] > 0)] ** 2).sum()


def along_one_dim(p: Any, b: Any, at: Places) -> Any:
    v = p["v"] * 2.0
    i = at(v > 0)[0] if at is not _itself else at(v > 0)
    v[i] *= 3.0
    return v.sum() + np.mean(v[i])


def of_numbers(p: Any, b: Any, at: Places) -> Any:
    return p["v"][at(np.maximum(p["v"], 0.0) != 0)].sum()


def _itself(mask: Any) -> Any:
    return mask.copy()


def run(loss: Any, at: Places) -> tuple[float, bytes]:
    trainer = graphc.compile(
        lambda p, b: loss(p, b, at), PARAMS, BATCH, optimizer=graphc.optim.sgd(0.1)
    )
    found = float(trainer.step(BATCH)["loss"])
    return found, b"".join(x.tobytes() for x in trainer.params.values())


@pytest.mark.filterwarnings("ignore::graphc.GraphcWarning")
@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("loss", [written, computed, rows, along_one_dim, of_numbers])
def test_places_of_a_mask_are_the_mask(loss: Any, name: str) -> None:
    found, params = run(loss, PLACES[name])
    assert (found, params) == run(loss, _itself)
    arrays = {k: v.copy() for k, v in PARAMS.items()}
    assert found == pytest.approx(float(loss(arrays, BATCH, PLACES[name])))


REFUSED: list[Callable[[Any], Any]] = [
    lambda p: len(np.where(p["v"] > 0)[0]) * p["v"].sum(),
    lambda p: p["w"][np.where(p["w"] > 0)[0]].sum(),
    lambda p: p["w"][np.where(p["w"] > 0)[::-1]].sum(),
    lambda p: p["w"][np.where(p["v"] > 0)[0], 0].sum(),
    lambda p: p["v"][np.where(p["w"] > 0)].sum(),
    lambda p: np.take(p["v"], np.where(p["v"] > 0)[0]).sum(),
    lambda p: (np.where(p["v"] > 0)[0] + 1) * p["v"].sum(),
    lambda p: np.ones(5)[np.where(p["v"] > 0)].sum() * p["v"].sum(),
    lambda p: np.where(p["v"] > 0)[0].size * p["v"].sum(),
]


@pytest.mark.parametrize("use", REFUSED)
def test_other_uses_are_refused(use: Callable[[Any], Any]) -> None:
    with pytest.raises(GraphcError) as caught:
        graphc.compile(lambda p, b: use(p), PARAMS, BATCH, optimizer=graphc.optim.sgd(0.1))
    assert caught.value.code in ("G0802", "G0805") and caught.value.span is not None
