"""Choosing a cut: what is known from one candidate to the next changes no cost, and no choice."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from graphc.compiler.pipeline import differentiation, run_passes
from graphc.frontend.language.load import load_module
from graphc.ir.graph import Graph
from graphc.ir.placement import Split
from graphc.passes.placing.choose_sharding import choose_cuts
from graphc.passes.placing.lazy import lazy_nodes
from graphc.passes.placing.place import Estimate
from graphc.strategies import MeshLayout, layout_of, parse_strategy

EXAMPLES = Path(__file__).parents[2] / "examples"

# As found with every candidate searched by itself.
CHOICES = {
    ("digits_cnn", "tensor_split(4)"): {
        "kernel.1": 2, "w": 0, "kernel.0": 3, "scale.1": 0, "shift.1": 0, "scale.0": 0,
        "shift.0": 0,
    },
    ("digits_cnn", "mirrored(2) * tensor_split(4)"): {
        "kernel.1": 2, "w": 0, "kernel.0": 3, "scale.1": 0, "shift.1": 0, "scale.0": 0,
        "shift.0": 0,
    },
    ("autoencoder", "tensor_split(2)"): {"enc.w1": 1, "dec.w2": 0, "enc.w2": 0, "dec.w1": 1},
    ("autoencoder", "tensor_split(4)"): {
        "enc.w1": 0, "dec.w2": 0, "enc.w2": 1, "dec.w1": 1, "probe.w": 1,
    },
    ("autoencoder", "mirrored(2) * tensor_split(4)"): {
        "enc.w1": 0, "dec.w2": 0, "enc.w2": 0, "dec.w1": 1, "dec.b1": 0, "dec.b2": 0,
    },
}  # fmt: skip


@cache
def graph(example: str) -> Graph:
    return run_passes(load_module(EXAMPLES / f"{example}.gc").train, differentiation())


def estimate(g: Graph) -> Estimate:
    return Estimate(g, lazy_nodes(g))


class Watched:
    """An estimate that notes what it is asked, and what it answers."""

    def __init__(self, g: Graph) -> None:
        self.estimate, self.asked = estimate(g), list[tuple[MeshLayout, float]]()

    def __call__(self, layout: MeshLayout) -> float:
        self.asked.append((layout, self.estimate(layout)))
        return self.asked[-1][1]


@pytest.mark.parametrize(("example", "strategy"), CHOICES)
def test_the_choice_is_that_of_candidates_searched_by_themselves(
    example: str, strategy: str
) -> None:
    watched = Watched(graph(example))
    found = choose_cuts(graph(example), layout_of(parse_strategy(strategy)), watched)
    cuts = {r.glob: r.state.dim for r in found.variables if isinstance(r.state, Split)}
    assert cuts == CHOICES[example, strategy]
    for layout, cost in watched.asked[-2:]:
        assert cost == pytest.approx(estimate(graph(example))(layout), rel=1e-12)


def test_no_candidate_is_estimated_twice() -> None:
    watched = Watched(graph("digits_cnn"))
    choose_cuts(graph("digits_cnn"), layout_of(parse_strategy("tensor_split(4)")), watched)
    seen = [layout for layout, _ in watched.asked]
    assert len(seen) == len(set(seen)) <= 12
