"""How a batch is cut into the parts of ranks and turns."""

from collections.abc import Iterator

import numpy as np
import pytest

from graphc.ir.placement import Axis, Mesh, Partial, Split
from graphc.ir.types import F64, Extent
from graphc.lowering.program.program import Buffer, Program
from graphc.lowering.schedule.schedule import schedule
from graphc.ops.collective import Accumulation, AllReduce, Stack
from graphc.ops.reduce import ReduceSum
from graphc.ops.shape import Broadcast
from graphc.ops.source import DimSize
from graphc.ops.unary import Neg
from graphc.runtime.data.stream import MicrobatchStream
from graphc.runtime.data.supply import Supply, WholeBatch, feeds, padding
from graphc.support.errors import GraphcError
from graphc.testing.placed_graphs import PlacedGraph

S0, P = Split(0), Partial()
MESH = Mesh((Axis("data", 3), Axis("turn", 2, "time")))


def program(n: int = 14, *, exact: bool = False, what: str = "sum") -> Program:
    g = PlacedGraph(MESH)
    x = g.input("x", (n, 2), extent="batch", data=S0, turn=S0)
    x = g.node(Neg(), [x], data=S0, turn=S0)
    if what == "each":
        stacked = g.convert(x, Stack("turn", 0))
        x = g.mask(stacked, 0, 0)
        total = g.node(ReduceSum((0,)), [x], data=P)
    elif what == "count":
        count = g.node(DimSize(n, Extent("batch"), F64), [])
        spread = g.node(Broadcast((n, 2)), [count], data=S0, turn=S0)
        total = g.node(ReduceSum((0,)), [spread], data=P, turn=P)
        total = g.convert(total, Accumulation("turn"))
    else:
        total = g.node(ReduceSum((0,)), [g.mask(x, 0, 0)], data=P, turn=P)
        total = g.convert(total, Accumulation("turn"))
    g.output("y", g.convert(total, AllReduce("data")))
    return schedule(g.build(), exact=exact)


def fed(p: Program) -> Buffer:
    return dict(feeds(p))["x"]


def parts(p: Program, supply: Supply) -> Iterator[tuple[int, int, np.ndarray]]:
    """(offset, valid, array) of every rank and turn."""
    buffer = fed(p)
    for turn in range(MESH.turns):
        for rank in range(MESH.devices):
            at = MESH.coordinates(rank, turn)
            out = np.empty(buffer.shape, buffer.dtype.numpy)
            supply.fill("x", buffer, at, out)
            yield (*supply.cut(buffer.ranges[0], at), out)


@pytest.mark.parametrize("n", [14, 12, 5, 1])
def test_every_example_goes_to_one_place(n: int) -> None:
    p, x = program(14), np.arange(2.0 * n).reshape(n, 2)
    found = np.full_like(x, np.nan)
    for offset, valid, part in parts(p, WholeBatch(p, {"x": x})):
        assert np.isnan(found[offset : offset + valid]).all()
        found[offset : offset + valid] = part[:valid]
    assert np.array_equal(found, x)


@pytest.mark.parametrize("poison", [False, True])
def test_padding_is_zero_or_poison(poison: bool) -> None:
    p = program(14)
    padded = 0
    for _, valid, part in parts(p, WholeBatch(p, {"x": np.ones((13, 2))}, poison=poison)):
        rest = part[valid:]
        padded += len(rest)
        assert np.isnan(rest).all() if poison else not rest.any()
    assert padded == 3 * 2 * fed(p).shape[0] - 13


def test_poisoned_indices_are_wild() -> None:
    assert padding(np.dtype(np.int32), True) == 2**30 - 1
    assert padding(np.dtype(np.uint8), True) == 127
    assert padding(np.dtype(bool), True) is True


def test_arrays_of_any_strides_are_cut() -> None:
    p, x = program(14), np.arange(56.0).reshape(2, 28)[:, ::2].T
    assert not x.flags.c_contiguous
    whole = [part[:valid] for _, valid, part in parts(p, WholeBatch(p, {"x": x}))]
    assert sorted(np.concatenate(whole)[:, 0]) == sorted(x[:, 0])


# -- streams -------------------------------------------------------------------------------------


def microbatches(*sizes: int) -> list[dict[str, np.ndarray]]:
    ends = np.cumsum(sizes)
    x = np.arange(2.0 * ends[-1]).reshape(-1, 2)
    return [{"x": x[end - n : end]} for n, end in zip(sizes, ends, strict=True)]


@pytest.mark.parametrize("sizes", [(9, 5), (1, 9), (4, 0), (7,)])
def test_each_turn_takes_a_microbatch(sizes: tuple[int, ...]) -> None:
    p = program(18)
    given = microbatches(*sizes)
    supply = MicrobatchStream(p, iter(given), poison=True)
    rows: dict[int, float] = {}
    for offset, valid, part in parts(p, supply):
        rows |= {offset + i: part[i, 0] for i in range(valid)}
    assert [rows[i] for i in sorted(rows)] == [x for b in given for x in b["x"][:, 0]]
    assert supply.count("batch", 18) == sum(sizes)


def test_microbatches_are_pulled_when_their_turn_begins() -> None:
    p, pulled = program(18), []

    def source() -> Iterator[dict[str, np.ndarray]]:
        for b in microbatches(5, 5):
            pulled.append(len(b["x"]))
            yield b

    supply, buffer = MicrobatchStream(p, source()), fed(p)
    out = np.empty(buffer.shape)
    supply.fill("x", buffer, MESH.coordinates(0, 0), out)
    assert len(pulled) == 1
    for rank in range(3):
        supply.fill("x", buffer, MESH.coordinates(rank, 1), out)
    assert len(pulled) == 2
    assert len(supply._turns) == 1  # the first one is dropped when nobody asks for it any more


@pytest.mark.parametrize(
    ("sizes", "code", "message"),
    [
        ((5, 5, 5), "G0618", "more than 2 microbatches"),
        ((10, 1), "G0615", "'x' has 10 entries of 'batch', more than 9"),
        ((0, 0), "G0617", "the microbatches are empty"),
    ],
)
def test_a_stream_that_does_not_fit_is_an_error(
    sizes: tuple[int, ...], code: str, message: str
) -> None:
    p = program(18)
    supply = MicrobatchStream(p, iter(microbatches(*sizes)))
    with pytest.raises(GraphcError, match=message) as error:
        list(parts(p, supply))
    assert error.value.code == code


def test_an_empty_stream_is_an_error() -> None:
    p = program(18)
    with pytest.raises(GraphcError, match="gave 0 of 2 microbatches"):
        list(parts(p, MicrobatchStream(p, iter([]))))


def test_full_batches_take_full_microbatches_only() -> None:
    p = program(12, exact=True)
    list(parts(p, MicrobatchStream(p, iter(microbatches(6, 6)))))
    with pytest.raises(GraphcError, match=r"'x' has shape \(5, 2\), the step takes \[6, 2\]"):
        list(parts(p, MicrobatchStream(p, iter(microbatches(5, 6)))))
    with pytest.raises(GraphcError, match="gave 1 of 2 microbatches"):
        list(parts(p, MicrobatchStream(p, iter(microbatches(6)))))


def test_a_count_before_the_end_can_not_be_streamed() -> None:
    with pytest.raises(GraphcError, match="%dim_size needs the number of examples before"):
        MicrobatchStream(program(what="count"), iter([]))


def test_a_result_for_every_example_can_not_be_streamed() -> None:
    with pytest.raises(GraphcError, match="%stack gathers a result for every example"):
        MicrobatchStream(program(what="each"), iter([]))
