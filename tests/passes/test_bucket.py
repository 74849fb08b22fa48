"""Small sums over devices are exchanged as one; what is sent, and every entry, stays."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from graphc.compiler.driver import compile_module
from graphc.frontend.language.load import load_module, module_of_source
from graphc.ir.placement import Axis, Mesh, Partial
from graphc.lowering.program.listing import print_program
from graphc.lowering.program.program import Program, Start
from graphc.ops.binary import Add
from graphc.ops.collective import (
    AllGather,
    AllReduce,
    Conversion,
    ReduceScatter,
    ToPartial,
    TreeReduce,
)
from graphc.passes.partitioning.bucket import Bucket
from graphc.runtime.backends.reference import BACKEND
from graphc.runtime.synchronous.engine import Engine
from graphc.strategies import parse_strategy
from graphc.testing.placed_graphs import PlacedGraph
from graphc.verify import verify

DIGITS = load_module(Path(__file__).parents[2] / "examples" / "digits.gc")
MESH = Mesh((Axis("data", 2),))


def train(strategy: str, bucket: int) -> Program:
    return compile_module(DIGITS, parse_strategy(strategy), bucket=bucket).programs["train"]


def collectives(program: Program) -> Counter[str]:
    ops = (getattr(x, "op", None) for x in program.instructions)
    return Counter(op.name for op in ops if isinstance(op, Conversion) and op.communicates)


@pytest.mark.parametrize("strategy", ["mirrored(4)", "mirrored(2) * accumulate(2)"])
def test_one_exchange_is_left_of_six(strategy: str) -> None:
    assert collectives(train(strategy, 0)) == {"all_reduce": 6}
    assert collectives(train(strategy, 1 << 20)) == {"all_reduce": 1}


def test_as_much_is_joined_as_a_bucket_holds() -> None:
    """w1 is over half a bucket, and stays by itself; the others take 5 KiB."""
    assert collectives(train("mirrored(4)", 1 << 14)) == {"all_reduce": 2}


def test_what_is_sent_stays() -> None:
    assert train("mirrored(4)", 1 << 20).sent_bytes == train("mirrored(4)", 0).sent_bytes


def test_a_tree_stays_a_tree() -> None:
    program = train('mirrored(4, reduce="tree")', 1 << 20)
    sums = [x.op for x in program.instructions if isinstance(x, Start)]
    assert sums == [TreeReduce("data")]


def test_the_listing_shows_what_was_joined() -> None:
    text = print_program(train("mirrored(4)", 1 << 20))
    assert "%bucket.sum" in text and "concat" in text


def summed(needed: bool) -> PlacedGraph:
    """Two sums, the second of which may be made of the first."""
    g = PlacedGraph(MESH)
    a, b = g.variable("a", (3,), data=Partial()), g.variable("b", (3,), data=Partial())
    x = g.f.rename(g.convert(a, AllReduce("data")), "x")
    if needed:
        b = g.node(Add(), [b, g.convert(x, ToPartial("data"))], data=Partial())
    g.output("y", g.f.rename(g.convert(b, AllReduce("data")), "y"))
    g.output("x", x)
    return g


def test_a_sum_that_needs_another_is_not_joined_with_it() -> None:
    graph = summed(True).build()
    assert Bucket().run(graph) == graph


def test_a_bucket_says_what_it_joined() -> None:
    graph = Bucket().run(summed(False).build())
    why = graph["bucket.sum"].because
    assert why is not None and str(why) == "bucket: 2 sums in one: joined: %a, %b"
    verify(graph, "placed")


def test_an_empty_bucket_joins_nothing() -> None:
    graph = summed(False).build()
    assert Bucket(0).run(graph) == graph


@pytest.mark.parametrize(("stage", "found"), [(1, (3, 3)), (2, (3, 3)), (3, (3, 0))])
def test_what_is_scattered_and_gathered_along_dim_0_is_joined(
    stage: int, found: tuple[int, int]
) -> None:
    """Of two biases and w2; w1 is cut along dim 1. Gathers for each use stay by themselves."""
    apart = collectives(train(f"zero(2, stage={stage})", 0))
    joined = collectives(train(f"zero(2, stage={stage})", 1 << 20))
    fewer = [apart[op] - joined[op] + 1 for op in ("reduce_scatter", "all_gather")]
    assert tuple(n if n > 1 else 0 for n in fewer) == found
    both = [train(f"zero(2, stage={stage})", n).sent_bytes for n in (0, 1 << 20)]
    assert both[0] == both[1]


def test_a_dim_that_the_places_do_not_divide_is_not_joined() -> None:
    g = PlacedGraph(MESH)
    for name in ("a", "b"):
        x = g.variable(name, (3,), data=Partial())
        g.output(
            f"y{name}", g.convert(g.convert(x, ReduceScatter("data", 0)), AllGather("data", 0))
        )
    graph = g.build()
    assert Bucket().run(graph) == graph


@pytest.mark.parametrize(
    "strategy", ["mirrored(4)", "zero(2)", "zero(4, stage=2)", "zero(2, stage=3)"]
)
def test_the_same_bits_come_out(strategy: str) -> None:
    rng = np.random.default_rng(0)
    found = []
    batch = {
        k: rng.normal(size=t.shape).astype(t.dtype.numpy) if t.dtype.kind == "f"
        else np.zeros(t.shape, t.dtype.numpy)
        for k, t in train(strategy, 0).inputs.items()
    }  # fmt: skip
    start = {
        k: rng.normal(size=t.shape).astype(t.dtype.numpy)
        for k, t in train(strategy, 0).variable_types.items()
    }
    for bucket in (0, 1 << 20):
        with Engine({"train": train(strategy, bucket)}, BACKEND) as engine:
            engine.load_variables(start)
            engine.step(dict(batch))
            found.append(engine.variables())
    assert all(np.array_equal(found[0][k], found[1][k], equal_nan=True) for k in start)


BARRIERS = """
step s(x: f32[batch, 4], y: f32[batch]) {
    param w: f32[4] = he_normal()
    report spread = sum(square(x - mean(x, axis=0)), axis=0)
    report weight = sum(exp(x - max(x, axis=0)), axis=0)
    minimize mean(square(x @ w - y)) with sgd(0.1)
}
"""


def test_what_a_loop_needs_is_not_joined_with_what_it_gives() -> None:
    """The mean of x, and a sum that needs the largest x, and not the mean."""
    module = module_of_source(BARRIERS, sizes={"batch": 12})
    strategy = parse_strategy("mirrored(2) * accumulate(3)")
    plans = [compile_module(module, strategy, bucket=n) for n in (0, 1 << 20)]
    apart, joined = (collectives(plan.programs["train"]).total() for plan in plans)
    assert (apart, joined) == (6, 3)
