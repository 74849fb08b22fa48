"""The bits law: under a grid, a step gives the same bits however the mesh cuts it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from laws.barriers import has_barrier
from laws.execute import Runner
from laws.generator import Data, data_for, make, recipe
from laws.law import Broken
from laws.recipe import Recipe
from laws.simulate import Array, Results

from graphc.compiler.pipeline import distribution, partitioning, run_passes
from graphc.ir.graph import Graph
from graphc.ir.types import F32
from graphc.passes.placing.tile import seed_dims
from graphc.strategies import Grid, parse_strategy
from graphc.support.errors import GraphcError
from graphc.text import print_ir

BATCH_SIZE = 8


@dataclass(frozen=True)
class BitsCase:
    """A model with its data, and the strategies that must agree; the first has one device."""

    recipe: Recipe
    data: Data
    strategies: tuple[str, ...]

    def graph(self, strategy: str) -> Graph | None:
        """The graph that every rank runs; None where the step needs all leaves midway."""
        parsed = parse_strategy(strategy)
        model = make(self.recipe, BATCH_SIZE, F32)
        try:
            return run_passes(model.graph, [*distribution(parsed), *partitioning(parsed)])
        except GraphcError as error:
            if error.code == "G0403" and has_barrier(model.graph):
                return None
            raise


def bits_case(seed: int, stride: int = 1000, precision: str = "") -> BitsCase:
    """The case of that seed. precision: a factor of all its strategies."""
    for attempt in range(seed * stride, (seed + 1) * stride):
        made = recipe(attempt)
        if (data := data_for(made, BATCH_SIZE)) is not None:
            graph = make(made, BATCH_SIZE, F32).graph
            each = (f"{s} * {precision}" if precision else s for s in strategies(graph, seed))
            return BitsCase(made, data.cast(F32), tuple(each))
    raise AssertionError(f"no model with good data for case {seed}")


PRODUCTS = (
    "{cut2}", "{cut4}", "mirrored(2) * {cut2}", "{cut2} * mirrored(3)",
    "accumulate(2) * {cut2} * mirrored(2)", "zero(2, stage=1) * {cut2}", "zero(3, stage=3) * {cut2}",
    "central_storage(2) * {cut2}", "parameter_server(3, 2) * {cut2}", "zero(2, stage=2)",
    "mirrored(2) * {cut4}", "multi_worker_mirrored(2, 2) * {cut2}",
)  # fmt: skip


def strategies(graph: Graph, seed: int) -> Iterator[str]:
    """Strategies that share a grid, the one device first."""
    rng = random.Random(f"grid {seed}")
    tiles, slots = rng.choice((2, 4)), rng.choice((1, 4, 8))
    grid = f"reproducible({slots}, tiles={tiles})"
    yield grid
    for product in rng.sample(PRODUCTS, 3):
        cuts = {f"cut{n}": f"tensor_split({n}{_cut(graph, tiles, rng)})" for n in (2, 4)}
        needs = 4 if "cut4" in product else 2
        parts = 4 if "accumulate" in product or "multi" in product else 3
        if needs <= tiles and (slots >= parts or (product.startswith("{") and "*" not in product)):
            yield f"{product.format(**cuts)} * {grid}"


def _cut(graph: Graph, tiles: int, rng: random.Random) -> str:
    """A random map of variables to dims that are tiled, or none: the compiler chooses."""
    dims: dict[str, list[int]] = {}
    for name, dim in sorted(seed_dims(graph, Grid(1, tiles))):
        if graph.variables[name].kind == "param" and rng.random() < 0.8:
            dims.setdefault(name, []).append(dim)
    inside = ", ".join(f'"{name}": {rng.choice(found)}' for name, found in dims.items())
    return f", {{{inside}}}" if inside else ""


def check_bits(c: BitsCase, run: Runner) -> int:
    """Raise Broken where two strategies of a case end with different bits; how many were run."""
    first, *others = c.strategies
    whole = c.graph(first)
    if whole is None:
        return 0
    want = _bits(c, whole, run)
    for strategy in others:
        graph = c.graph(strategy)
        assert graph is not None, f"{strategy} has a barrier, {first} has none"
        found = _bits(c, graph, run)
        for name, value in want.items():
            if found[name].tobytes() != value.tobytes():
                message = f"{name} under {strategy} is\n{found[name]}\nand not\n{value}"
                raise Broken(f"seed {c.recipe.seed}: {message}\n{print_ir(graph)}")
    return len(others)


def _bits(c: BitsCase, graph: Graph, run: Runner) -> dict[str, Array]:
    found: Results = run(graph, {"batch": BATCH_SIZE}, c.data.inputs, c.data.variables)
    outputs = {f"output '{k}'": v for k, v in found.outputs.items()}
    return outputs | {f"variable '{k}'": v for k, v in found.variables.items()}
