"""Routes between placements: which conversions, in which order."""

from __future__ import annotations

import pytest

from graphc.passes.route import LATENCY, LOCAL, route
from graphc.placement import (
    Axis,
    Home,
    Leaves,
    Mesh,
    Partial,
    Placement,
    R,
    Split,
    State,
    place,
)  # fmt: skip
from graphc.types import F32, TensorType

DATA, MODEL, TURN = Axis("data", 2), Axis("model", 4), Axis("turn", 3, "time")


def steps(mesh: Mesh, start: dict[str, State], want: dict[str, State]) -> list[str] | None:
    """The names of the conversions of a [8, 8] tensor; None where there is no way."""
    t = TensorType((8, 8), F32, placement=place(mesh, start.items()))
    found = route(t, place(mesh, want.items()), mesh)
    return None if found is None else [f"{s.name}:{s.attributes['axis']}" for s, _ in found[1]]


def test_a_sum_is_accumulated_before_it_is_exchanged() -> None:
    mesh = Mesh((DATA, TURN))
    start = {"data": Partial(), "turn": Partial()}
    assert steps(mesh, start, {}) == ["accumulate:turn", "all_reduce:data"]


def test_a_dim_that_two_axes_cut_is_joined_minor_axis_first() -> None:
    both = {"data": Split(0), "model": Split(0)}
    assert steps(Mesh((DATA, MODEL)), both, {}) == ["all_gather:model", "all_gather:data"]


def test_a_dim_is_cut_major_axis_first() -> None:
    both = {"data": Split(0), "model": Split(0)}
    assert steps(Mesh((DATA, MODEL)), {}, both) == ["tensor_split:data", "tensor_split:model"]


def test_a_minor_axis_in_the_way_is_gathered_and_cut_again() -> None:
    minor, both = {"model": Split(0)}, {"data": Split(0), "model": Split(0)}
    way = ["all_gather:model", "tensor_split:data", "tensor_split:model"]
    assert steps(Mesh((DATA, MODEL)), minor, both) == way


def test_there_is_no_way_back_into_a_loop() -> None:
    minor, both = {"turn": Split(0)}, {"data": Split(0), "turn": Split(0)}
    assert steps(Mesh((DATA, TURN)), minor, both) is None
    assert steps(Mesh((TURN, DATA)), minor, both) == ["tensor_split:data"]


def test_a_whole_value_becomes_partial_by_way_of_nothing_but_itself() -> None:
    assert steps(Mesh((DATA,)), {"data": Split(0)}, {"data": Partial()}) == [
        "all_gather:data", "to_partial:data",
    ]  # fmt: skip


@pytest.mark.parametrize(("state", "cost"), [(R, 3 * (256 + LATENCY)), (Split(1), 3 * LOCAL)])
def test_a_conversion_in_the_loop_costs_once_per_turn(state: State, cost: float) -> None:
    mesh = Mesh((TURN, DATA))
    source = Split(1) if state == R else R
    at = place(mesh, [("turn", Partial()), ("data", source)])
    want = place(mesh, [("turn", Partial()), ("data", state)])
    t = TensorType((16, 8), F32, placement=at)
    found = route(t, want, mesh)
    assert found is not None
    assert found[0] == pytest.approx(cost)


def test_no_conversion_is_needed_where_a_value_lies_as_it_is_wanted() -> None:
    assert route(TensorType((4,), F32), Placement(), Mesh((DATA,))) == (0.0, ())


def over_leaves(*space: Axis, **want: State) -> list[str] | None:
    """The way of a sum over leaves."""
    leaf = Axis("leaf", 3, "time")
    names = (*(a.name for a in space), "leaf")
    mesh = Mesh((*space, leaf), Leaves(9, names))
    return steps(mesh, dict.fromkeys(names, Partial()), want)


def test_a_sum_over_leaves_is_one_tree_wherever_it_is_wanted() -> None:
    whole = "data+leaf"
    assert over_leaves(DATA) == [f"tree_reduce:{whole}"]
    assert over_leaves(DATA, data=Split(0)) == [f"reduce_scatter:{whole}"]
    assert over_leaves(DATA, data=Home(1)) == [f"reduce:{whole}"]


def test_a_sum_over_leaves_is_cut_along_one_axis_and_then_along_others() -> None:
    whole = "data+model+leaf"
    both = {"data": Split(0), "model": Split(0)}
    assert over_leaves(DATA, MODEL, model=Split(1)) == [f"reduce_scatter:{whole}"]
    assert over_leaves(DATA, MODEL, **both) == [f"reduce_scatter:{whole}", "tensor_split:model"]
