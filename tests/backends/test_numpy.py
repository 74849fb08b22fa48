"""The NumPy backend: products and selections of every kind, and no allocation."""

import itertools
import tracemalloc

import numpy as np
import pytest
from graphc_numpy import NumpyBackend
from graphc_numpy.calls.device import NumpyDevice
from graphc_numpy.calls.products import bind_product
from graphc_numpy.calls.reductions import bind_extreme, bind_sum, scatter_rows
from graphc_numpy.calls.selection import bind_select
from graphc_numpy.memory import Scratch, block

from graphc.compiler.pipeline import differentiation, distribution, partitioning, run_passes
from graphc.lowering.schedule.schedule import schedule
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
        scratch = Scratch()
        calls = bind_product(spec, a, b, out, scratch)
        for _ in range(2):
            perform(calls)
            assert np.array_equal(out, np.einsum(spec, a, b))


def test_a_product_of_a_broadcast_is_right() -> None:
    a, b = np.broadcast_to(np.float32(2), (3, 4)), np.ones((4, 5), np.float32)
    out = np.empty((3, 5), np.float32)
    perform(bind_product("bk,kn->bn", a, b, out, Scratch()))
    assert (out == 8).all()


def test_a_matrix_product_is_one_call() -> None:
    a, b, out = np.ones((3, 4)), np.ones((3, 5)), np.empty((4, 5))
    (call,) = bind_product("bk,bn->kn", a, b, out, Scratch())
    assert call.func is np.matmul  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["f4", "f8", "f2", "i4", "i8", "u1", "?"])
@pytest.mark.parametrize("size", [0, 1, 100, 40_000])
@pytest.mark.parametrize("over", ["new", "a", "b"])
def test_a_selection_is_where(kind: str, size: int, over: str) -> None:
    rng = np.random.default_rng(0)
    c = rng.integers(0, 2, size).astype(bool)
    a, b = (rng.integers(0, 9, size).astype(kind) for _ in range(2))
    want = np.where(c, a, b)
    out = {"new": np.empty(size, kind), "a": a, "b": b}[over]
    perform(bind_select(c, a, b, out, Scratch()))
    assert np.array_equal(out, want)


@pytest.mark.parametrize("size", [10, 40_000])
def test_a_nan_in_the_other_arm_stays_out(size: int) -> None:
    c = np.arange(size) % 3 == 0
    a, zero = np.where(c, 1.0, np.nan), np.broadcast_to(0.0, (size,))
    for b_is_zero in (False, True):
        out = np.empty(size)
        perform(bind_select(c, a, zero, out, Scratch(), b_is_zero))
        assert np.array_equal(out, c * 1.0)


SHAPES = [(6, 5), (1, 5), (6, 1), (400, 3), (3, 400), (40, 2, 2), (7, 4, 4, 3), (0, 3), (3, 0)]


@pytest.mark.parametrize("kind", ["f4", "f8", "i4", "?"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_reduction_is_numpys(shape: tuple[int, ...], kind: str) -> None:
    x = np.random.default_rng(0).integers(0, 9, shape).astype(kind)
    for size in range(1, x.ndim + 1):
        for over in itertools.combinations(range(x.ndim), size):
            out = np.empty(np.add.reduce(x, over).shape, kind)
            if kind != "?":
                perform(bind_sum(x, over, out))
                assert np.array_equal(out, x.sum(over, dtype=kind)), over
            for ufunc, first in ((np.maximum, 0), (np.minimum, 1 if kind == "?" else 9)):
                perform(bind_extreme(ufunc, x, over, first, out))
                assert np.array_equal(out, ufunc.reduce(x, over, initial=first)), over


def test_a_reduction_lets_nan_through() -> None:
    x = np.ones((100, 4))
    x[3, 2] = np.nan
    for made in (bind_sum, lambda *a: bind_extreme(np.maximum, a[0], a[1], -np.inf, a[2])):
        out = np.empty(100)
        perform(made(x, (1,), out))
        assert np.flatnonzero(np.isnan(out)).tolist() == [3]


@pytest.mark.parametrize("rest", [(), (3,), (2, 2)])
def test_rows_of_one_index_add_up(rest: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    ids, updates = rng.integers(0, 6, (5, 4)), rng.integers(0, 9, (5, 4, *rest)).astype("f4")
    want, out = np.zeros((6, *rest), "f4"), np.full((6, *rest), 7, "f4")
    np.add.at(want, ids, updates)
    scatter_rows(ids, updates, out)
    assert np.array_equal(out, want)
    scatter_rows(ids[:0], updates[:0], out)
    assert not out.any()


def test_blocks_of_memory_are_aligned() -> None:
    assert all(block(n).ctypes.data % 64 == 0 for n in (1, 7, 64, 1000))


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
        assert device.footprint.arena == engine.programs["train"].arena


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
