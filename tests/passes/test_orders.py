"""Orders of summation, counted in the program that is executed: heights, and what is alive."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil, log2

import numpy as np
import pytest
from graphc_numpy import BACKEND

from graphc.compiler.pipeline import differentiation, distribution, partitioning, run_passes
from graphc.ir.builder import Builder
from graphc.ir.graph import Graph, Objective, Variable
from graphc.ir.orders import Order, parse_orders
from graphc.ir.types import F64, Extent, TensorType
from graphc.lowering.memory.memory_plan import plan_memory
from graphc.lowering.program.program import Instruction, Kernel, Loop, Program, Start, reads, writes
from graphc.lowering.schedule.schedule import schedule
from graphc.ops.collective import Conversion
from graphc.ops.elementwise import Aggregate
from graphc.optim import sgd
from graphc.passes.base import PASSES
from graphc.runtime.backends.reference import BACKEND as REFERENCE
from graphc.runtime.synchronous.engine import run_once
from graphc.strategies import parse_strategy

WIDTH, BATCH = 7, 12
COUNTS = (2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 31, 32, 33)


def shared(n: int, order: str = "", own: str = "", batch: int = BATCH) -> Graph:
    """A weight that n layers share; the loss is a mean over the batch."""
    f = Builder()
    x = TensorType((batch, WIDTH), F64, (Extent("batch"), None))
    h = f.add(_op("input", source_name="x"), type=x, name="x")
    w = f.declare(Variable("w", TensorType((WIDTH, WIDTH), F64), order=parse_orders(own)))
    for _ in range(n):
        h = f.tanh(f.matmul(h, w))
    loss = f.mean(h * h)
    f.outputs["loss"] = loss.name
    f.objectives.append(Objective(loss.name, sgd(0.1), ("w",), parse_orders(order)))
    return f.build()


def _op(name: str, **attributes: object):  # type: ignore[no-untyped-def]
    from graphc.ir.op import op_named

    return op_named(name)(**attributes)


def compiled(graph: Graph, strategy: str = "one_device()", passes: Iterable[str] = ()) -> Program:
    """The program, with every optional pass run twice over on the way, in `passes`."""
    extra = [PASSES[p]() for p in passes]
    chosen = parse_strategy(strategy)
    graph = run_passes(graph, [*differentiation(), *extra, *distribution(chosen)])
    return schedule(run_passes(graph, [*partitioning(chosen), *extra]), exact=True)


OPTIONAL = [name for name, p in PASSES.items() if p.optional]


@dataclass
class Watch:
    """Runs through a program's instructions as a rank does, and counts what is alive.

    A gradient is a buffer of the weight's shape (or several of them in one, over turns) that was
    made in the backward pass, from when it is written to when it is last read. A result that takes
    the place of an operand that dies there is not counted twice: that is what the arena does.
    heights: buffer -> the height of the tree of additions that made it
    """

    program: Program
    most: int = 0
    heights: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.offsets = plan_memory(self.program).offsets

    def run(self) -> Watch:
        line = list(self._line())
        last = {self._root(x): i for i, (step, _) in enumerate(line) for x in reads(step)}
        alive: set[int] = set()
        for at, (step, _) in enumerate(line):
            made = writes(step)
            before = set(alive)
            if made is not None and self._is_gradient(step):
                alive.add(self._root(made))
                self._note_height(step, made)
            taken = self._in_place(step, made, last, at)
            self.most = max(self.most, sum(map(self._size, (before | alive) - taken)))
            alive = {x for x in alive if last.get(x, -1) > at}
        return self

    def _line(self) -> Iterable[tuple[Instruction, int]]:
        for x in [y for part in self.program.parts for y in part]:
            turns, body = (x.turns, x.body) if isinstance(x, Loop) else (1, (x,))
            for turn in range(turns):
                yield from ((step, turn) for step in body)

    def _root(self, buffer: int) -> int:
        return self.program.buffers[buffer].root

    def _size(self, buffer: int) -> int:
        """How many gradients a buffer holds."""
        return int(np.prod(self.program.buffers[buffer].shape)) // WIDTH**2

    def _is_gradient(self, step: Instruction) -> bool:
        """Whether a step makes a contribution to the weight's gradient, or a sum of them."""
        if not isinstance(step, Kernel):
            return False
        made = self.program.buffers[step.result]
        sums = isinstance(step.op, Aggregate | Conversion) or step.op.name == "settle"
        return made.shape[-2:] == (WIDTH, WIDTH) and (sums or step.op.name == "einsum")

    def _in_place(
        self, step: Instruction, made: int | None, last: dict[int, int], at: int
    ) -> set[int]:
        buffers, offsets = self.program.buffers, self.offsets
        if made is None or not isinstance(step, Kernel):
            return set()
        dying = [x for x in reads(step) if last.get(self._root(x)) == at]
        same = [x for x in dying if offsets.get(x, -1) == offsets.get(made, -2)]
        return {self._root(x) for x in same if buffers[x].kind == "arena" and x != made}

    def _note_height(self, step: Instruction, made: int) -> None:
        if isinstance(step, Kernel) and isinstance(step.op, Aggregate):
            below = [self.heights.get(x, 0) for x in step.operands]
            one_by_one = len(step.operands) - 1 if len(step.operands) > 2 else 1
            self.heights[made] = max(below) + one_by_one


def fed(n: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(n).standard_normal((BATCH, WIDTH))}


WEIGHT = {"w": np.random.default_rng(0).standard_normal((WIDTH, WIDTH)) / 3, "step": np.int64(0)}


# -- fan-in ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("passes", [(), tuple(OPTIONAL)], ids=["as it is", "every optional pass"])
@pytest.mark.parametrize("n", COUNTS)
def test_a_tree_is_as_high_as_the_logarithm_and_keeps_little(
    n: int, passes: tuple[str, ...]
) -> None:
    watch = Watch(compiled(shared(n, "fanin=tree"), passes=passes)).run()
    assert max(watch.heights.values()) == ceil(log2(n))
    assert watch.most <= ceil(log2(n)) + 2


@pytest.mark.parametrize("passes", [(), tuple(OPTIONAL)], ids=["as it is", "every optional pass"])
@pytest.mark.parametrize("n", COUNTS)
def test_a_running_sum_keeps_two(n: int, passes: tuple[str, ...]) -> None:
    watch = Watch(compiled(shared(n, "fanin=accumulate"), passes=passes)).run()
    assert max(watch.heights.values()) == n - 1
    assert watch.most == 2


@pytest.mark.parametrize("n", COUNTS)
def test_add_n_keeps_all_and_adds_them_once(n: int) -> None:
    program = compiled(shared(n, "fanin=add_n"))
    assert Watch(program).run().most >= n
    added = [
        x for x in program.instructions if isinstance(x, Kernel) and isinstance(x.op, Aggregate)
    ]
    assert [
        len(x.operands) for x in added if program.buffers[x.result].shape == (WIDTH, WIDTH)
    ] == [n]


def test_the_memory_of_a_program_falls_with_the_order() -> None:
    arena = {
        order: plan_memory(compiled(shared(32, f"fanin={order}", batch=2))).arena
        for order in map(str, Order)
    }
    gradient = 8 * WIDTH**2
    assert arena["add_n"] - arena["tree"] > 20 * gradient
    assert arena["accumulate"] <= arena["tree"]


@pytest.mark.parametrize("order", [*map(str, Order)])
@pytest.mark.parametrize("backend", [BACKEND, REFERENCE], ids=["numpy", "reference"])
def test_every_order_gives_the_same_value(order: str, backend: object) -> None:
    n = 9
    want = run_once(compiled(shared(n)), REFERENCE, fed(n), WEIGHT)[1]["w"]
    for strategy in ("one_device()", "mirrored(3)", "accumulate(4)", "mirrored(2) * accumulate(3)"):
        program = compiled(shared(n, order), strategy)
        found = run_once(program, backend, fed(n), WEIGHT)[1]["w"]  # type: ignore[arg-type]
        np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-14)


# -- turns ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", [2, 3, 4, 6, 12])
def test_a_tree_over_turns_keeps_little(turns: int) -> None:
    program = compiled(shared(1, "turns=tree"), f"accumulate({turns})")
    assert Watch(program).run().most <= ceil(log2(turns)) + 2
    once = compiled(shared(1, "turns=add_n"), f"accumulate({turns})")
    assert Watch(once).run().most >= turns
    running = compiled(shared(1, "turns=accumulate"), f"accumulate({turns})")
    assert Watch(running).run().most == 2


def test_a_tree_over_turns_adds_in_balanced_pairs() -> None:
    """With f64 numbers that are lost in a running sum, and not in pairs."""
    from graphc.ops.settle import Settle, keep

    xs = [np.array(v) for v in (1e16, 1.0, 1.0, 1.0, 1.0, 1.0, -1e16)]
    kept = np.zeros(3)
    for turn, x in enumerate(xs):
        keep(Order.TREE, "sum", turn, x, kept)
    pairs = ((xs[0] + xs[1]) + (xs[2] + xs[3])) + ((xs[4] + xs[5]) + xs[6])
    assert Settle(Order.TREE, 7).run(kept) == pairs


@pytest.mark.parametrize("n", range(1, 34))
def test_the_counter_sums_any_number_of_turns(n: int) -> None:
    from graphc.ops.collective import Accumulation
    from graphc.ops.settle import keep

    for order in Order:
        op = Accumulation("turn", order=order)
        if op.partial_sums(n) == 1:
            continue
        kept = np.full((op.partial_sums(n), 2), np.nan)
        for turn in range(n):
            keep(order, "sum", turn, np.array([turn, 1.0]), kept)
        assert op.settled(n).run(kept).tolist() == [n * (n - 1) / 2, n]


# -- who chooses ----------------------------------------------------------------------------------


def sums(program: Program) -> set[str]:
    """How gradients are added over turns and devices, by op and order."""
    found = set()
    for x in program.instructions:
        conversion = isinstance(x, Kernel | Start) and isinstance(x.op, Conversion)
        if conversion and program.buffers[x.result].shape[-2:] == (WIDTH, WIDTH):
            found.add(f"{x.op.name} {x.op.order}")
    return found


@pytest.mark.parametrize(
    ("order", "own", "strategy", "expected"),
    [
        ("", "", "mirrored(2) * accumulate(2)", {"all_reduce add_n", "accumulate accumulate"}),
        ("tree", "", "mirrored(2) * accumulate(2)", {"tree_reduce tree", "accumulate tree"}),
        (
            "devices=tree",
            "",
            "mirrored(2) * accumulate(2)",
            {"tree_reduce tree", "accumulate accumulate"},
        ),
        (
            "",
            "turns=add_n",
            "mirrored(2) * accumulate(2)",
            {"all_reduce add_n", "accumulate add_n"},
        ),
        ("devices=tree", "devices=accumulate", "mirrored(2)", {"all_reduce accumulate"}),
        ("", "", 'mirrored(2, reduce="accumulate")', {"all_reduce accumulate"}),
        ("devices=add_n", "", 'mirrored(2, reduce="accumulate")', {"all_reduce add_n"}),
        (
            "",
            "",
            'mirrored(2) * accumulate(2, order="tree")',
            {"all_reduce add_n", "accumulate tree"},
        ),
        ("turns=add_n", "", 'accumulate(2, order="tree")', {"accumulate add_n"}),
    ],
)
def test_the_variable_comes_before_the_step_and_the_step_before_the_strategy(
    order: str, own: str, strategy: str, expected: set[str]
) -> None:
    assert sums(compiled(shared(2, order, own), strategy)) == expected


def test_only_the_gradient_of_the_variable_that_asks_goes_by_its_order() -> None:
    program = compiled(shared(2, own="tree"), "mirrored(2)")
    orders = {
        program.buffers[x.result].shape: x.op.order
        for x in program.instructions
        if isinstance(x, Start) and isinstance(x.op, Conversion)
    }
    assert orders == {(): Order.ADD_N, (WIDTH, WIDTH): Order.TREE}
