"""The bits law: under a grid, a step gives the same bits however the mesh cuts it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from laws.execute import Runner
from laws.generator import Data, data_for, make, recipe
from laws.law import Broken
from laws.recipe import Recipe
from laws.simulate import Array, Results

from graphc.graph import Graph
from graphc.passes.pipeline import distribution, partitioning, run_passes
from graphc.passes.tile import seed_dims
from graphc.strategy import Grid, parse_strategy
from graphc.text import print_ir
from graphc.types import F32

BATCH_SIZE = 8


@dataclass(frozen=True)
class BitsCase:
    """A model with its data, and the strategies that must agree; the first has one device."""

    recipe: Recipe
    data: Data
    strategies: tuple[str, ...]

    def graph(self, strategy: str) -> Graph:
        parsed = parse_strategy(strategy)
        model = make(self.recipe, BATCH_SIZE, F32)
        return run_passes(model.graph, [*distribution(parsed), *partitioning(parsed)])


def bits_case(seed: int, stride: int = 1000) -> BitsCase:
    """The case of that seed."""
    for attempt in range(seed * stride, (seed + 1) * stride):
        made = recipe(attempt)
        if (data := data_for(made, BATCH_SIZE)) is not None:
            graph = make(made, BATCH_SIZE, F32).graph
            return BitsCase(made, data.cast(F32), tuple(strategies(graph, seed)))
    raise AssertionError(f"no model with good data for case {seed}")


def strategies(graph: Graph, seed: int) -> Iterator[str]:
    """Strategies that share a grid, the one device first."""
    rng = random.Random(f"grid {seed}")
    tiles = rng.choice((2, 4))
    grid = f"reproducible(1, tiles={tiles})"
    yield grid
    for n in (2, 4):
        if n <= tiles:
            cut = _cut(graph, tiles, rng)
            yield f"tensor_split({n}{', {' + cut + '}' if cut else ''}) * {grid}"


def _cut(graph: Graph, tiles: int, rng: random.Random) -> str:
    """A random map of variables to dims that are tiled; '' to leave the choice to the compiler."""
    dims: dict[str, list[int]] = {}
    for name, dim in sorted(seed_dims(graph, Grid(1, tiles))):
        if graph.variables[name].kind == "param" and rng.random() < 0.8:
            dims.setdefault(name, []).append(dim)
    return ", ".join(f'"{name}": {rng.choice(found)}' for name, found in dims.items())


def check_bits(c: BitsCase, run: Runner) -> None:
    """Raise Broken where two strategies of a case end with different bits."""
    first, *others = c.strategies
    want = _bits(c, first, run)
    for strategy in others:
        found = _bits(c, strategy, run)
        for name, value in want.items():
            if found[name].tobytes() != value.tobytes():
                text = print_ir(c.graph(strategy))
                message = f"{name} under {strategy} is\n{found[name]}\nand not\n{value}\n{text}"
                raise Broken(f"seed {c.recipe.seed}: {message}")


def _bits(c: BitsCase, strategy: str, run: Runner) -> dict[str, Array]:
    found: Results = run(c.graph(strategy), {"batch": BATCH_SIZE}, c.data.inputs, c.data.variables)
    outputs = {f"output '{k}'": v for k, v in found.outputs.items()}
    return outputs | {f"variable '{k}'": v for k, v in found.variables.items()}
