"""Global values and their shards."""

import numpy as np
import pytest

from graphc.ir.placement import Axis, Mesh, Split, place
from graphc.ir.types import F64, Extent, TensorType
from graphc.runtime.synchronous.shards import owners, put_shard, shard_of

MESH = Mesh((Axis("a", 3), Axis("b", 2), Axis("turn", 4, "time")))
PLACEMENTS = [{}, {"a": Split(0)}, {"b": Split(1)}, {"a": Split(1), "b": Split(1)}]


@pytest.mark.parametrize("states", PLACEMENTS, ids=str)
@pytest.mark.parametrize("shape", [(7, 5), (6, 6), (1, 2), (2, 0)])
def test_the_owners_shards_make_the_whole(states: dict, shape: tuple[int, int]) -> None:
    t = TensorType(shape, F64, (), place(MESH, states.items()))
    value = np.arange(float(np.prod(shape))).reshape(shape)
    found = np.full(shape, np.nan)
    for rank in owners(t, MESH):
        put_shard(shard_of(value, t, MESH, rank), t, MESH, rank, found)
    assert np.array_equal(found, value)


@pytest.mark.parametrize(
    ("states", "count"), [*zip(PLACEMENTS, (1, 3, 2, 6), strict=True)], ids=str
)
def test_every_shard_has_one_owner(states: dict, count: int) -> None:
    assert len(owners(TensorType((7, 5), F64, (), place(MESH, states.items())), MESH)) == count


def test_entries_that_go_together_stay_together() -> None:
    extents = (Extent("batch", 3),)
    t = TensorType((12,), F64, extents, place(MESH, [("a", Split(0))]))
    assert [shard_of(np.arange(12.0), t, MESH, rank)[0] for rank in (0, 2, 4)] == [0, 6, 0]


def test_a_whole_value_is_not_copied_and_a_padded_or_cast_one_is() -> None:
    whole, value = TensorType((6, 5), F64, (), place(MESH, ())), np.ones((6, 5))
    assert np.shares_memory(shard_of(value, whole, MESH, 0), value)
    assert not np.shares_memory(shard_of(value.astype(np.float32), whole, MESH, 0), value)
    uneven, value = TensorType((7, 5), F64, (), place(MESH, [("a", Split(0))])), np.ones((7, 5))
    assert np.shares_memory(shard_of(value, uneven, MESH, 0), value)
    assert not np.shares_memory(last := shard_of(value, uneven, MESH, 5), value)
    assert last.shape == (3, 5)
