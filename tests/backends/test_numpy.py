"""The NumPy backend's steps of NumPy calls: products of every kind, and little is allocated."""

import itertools
import tracemalloc

import numpy as np
import pytest
from graphc_numpy import NumpyBackend
from graphc_numpy.calls.device import NumpyDevice
from graphc_numpy.calls.kernels import bind
from graphc_numpy.memory import HUGE, USUAL, Allocator, block
from numpy.typing import NDArray

from graphc.compiler.pipeline import differentiation, distribution, partitioning, run_passes
from graphc.lowering.memory.memory_plan import plan_memory
from graphc.lowering.schedule.schedule import schedule
from graphc.ops.contract import Einsum
from graphc.runtime.data.supply import WholeBatch
from graphc.runtime.synchronous.engine import Engine
from graphc.strategies import parse_strategy
from graphc.testing.models import classifier, classifier_data, first_values

SPECS = [
    "bk,kn->bn",
    "bk,kn->nb",
    "kb,kn->bn",
    "kb,nk->bn",
    "bk,bn->kn",
    "bk,nk->nb",
    "k,k->",
    "a,b->ba",
    "bhqd,bhkd->bhqk",
    "bhqk,bhkd->bhqd",
    "bhqd,bhqk->bhkd",
    "bqhd,bkhd->bhqk",
    "bhqk,bkhd->bqhd",
    "abcd,cde->abe",
    "abcd,cde->eab",
    "cdab,cde->aeb",
    "ab,cd->acbd",
    "abc,cab->b",
    ",ab->ab",
    "ab,->ba",
    "bxyijc,ijcn->bxyn",
    "bxyijc,bxyn->ijcn",
]
SIZES = dict(zip("abcdehijknqxy", (2, 3, 4, 3, 2, 2, 3, 2, 5, 4, 3, 2, 3), strict=True))


def perform(calls: list) -> None:
    for call in calls:
        call()


def random(rng: np.random.Generator, letters: str, kind: str, turned: bool) -> np.ndarray:
    shape = tuple(SIZES[x] for x in letters)
    x = rng.integers(-5, 5, shape[::-1] if turned else shape).astype(kind)
    return x.T if turned else x


@pytest.mark.parametrize("kind", ["f4", "f8", "i4", "f2"])
@pytest.mark.parametrize("spec", SPECS)
def test_a_product_is_einsum(spec: str, kind: str) -> None:
    rng = np.random.default_rng(0)
    left, right, result = spec.replace("->", ",").split(",")
    for turned in itertools.product((False, True), repeat=2):
        a, b = (random(rng, x, kind, t) for x, t in zip((left, right), turned, strict=True))
        out = np.full(tuple(SIZES[x] for x in result), 7, kind)
        perform(bind(Einsum(spec), (a, b), out))
        assert np.array_equal(out, np.einsum(spec, a, b))


def test_a_product_of_a_broadcast_is_right() -> None:
    a, b = np.broadcast_to(np.float32(2), (3, 4)), np.ones((4, 5), np.float32)
    out = np.empty((3, 5), np.float32)
    perform(bind(Einsum("bk,kn->bn"), (a, b), out))
    assert (out == 8).all()


def test_blocks_of_memory_are_aligned() -> None:
    assert all(block(n).ctypes.data % 64 == 0 for n in (1, 7, 64, 1000))


def test_large_blocks_fill_huge_pages() -> None:
    for size in (HUGE // 2, HUGE, 3 * HUGE + 5):
        one = block(size)
        assert one.ctypes.data % HUGE == 0 and one.nbytes == size


@pytest.mark.parametrize("scale", [1, 1 << 15])
def test_blocks_by_name_are_aligned_and_apart(scale: int) -> None:
    sizes = {"a": 5 * scale, "none": 0, "b": 64 * scale, "c": 100 * scale, "d": 1}
    blocks = USUAL.blocks(sizes)
    assert {n: x.nbytes for n, x in blocks.items()} == sizes
    for number, x in enumerate(blocks.values()):
        assert x.ctypes.data % 64 == 0
        x[:] = number
    assert all((x == number).all() for number, x in enumerate(blocks.values()))


def test_an_allocator_of_ones_own_is_asked_for_each_block() -> None:
    asked = list[int]()

    def own(size: int) -> NDArray[np.uint8]:
        asked.append(size)
        return np.zeros(size, np.uint8)

    assert list(Allocator(own).blocks({"a": 3, "b": 8})) == ["a", "b"]
    assert asked == [3, 8]


def engine_of(strategy: str, batch: int) -> tuple[Engine, NumpyDevice]:
    graph, how = (
        run_passes(classifier(batch, width=64), differentiation()),
        parse_strategy(strategy),
    )
    placed = run_passes(graph, [*distribution(how), *partitioning(how)])
    engine = Engine({"train": schedule(placed, exact=True)}, NumpyBackend(native=False))
    engine.load_variables(first_values(graph))
    device = engine._devices[0]
    assert isinstance(device, NumpyDevice)
    return engine, device


def test_the_arena_is_as_large_as_the_program_says() -> None:
    engine, device = engine_of("accumulate(2)", 64)
    with engine:
        assert device.footprint.arena == plan_memory(engine.programs["train"]).arena


@pytest.mark.parametrize("strategy", ["one_device", "accumulate(2)"])
def test_a_step_allocates_no_tensor(strategy: str) -> None:
    engine, device = engine_of(strategy, 4096)
    with engine:
        batch = {k: v.astype("f4" if k == "x" else "i4") for k, v in classifier_data(4096).items()}
        supply = WholeBatch(engine.programs["train"], batch)
        device.step("train", supply)
        tracemalloc.start()
        device.step("train", supply)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        # What the lookups by index of the loss allocate is per example, not per activation.
        assert peak < 4096 * 64 * 4 / 4, f"{peak} bytes"
