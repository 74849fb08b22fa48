"""The layout folds a step: forward down, backward up beside it; no two boxes overlap."""

from __future__ import annotations

import pytest

from graphc.inspect.layout import ABREAST, STACKED, Lane, Layout, Links, layout
from graphc.inspect.scene import Scene, scene
from graphc.inspect.svg import Canvas
from graphc.ir.builder import Builder
from graphc.ir.graph import Graph
from graphc.ir.types import F32, TensorType
from graphc.ops.source import Input


def laid_out(graph: Graph) -> tuple[Scene, Links, Layout]:
    made = scene(graph)
    links = Links.of(made)
    return made, links, layout(made, links)


def drawn(graph: Graph) -> Canvas:
    made, links, where = laid_out(graph)
    canvas = Canvas(made, where)
    canvas.measure(links)
    return canvas


def rows_of(graph: Graph) -> dict[str, int]:
    made, _, where = laid_out(graph)
    return {box.name: row for box, row in zip(made.boxes, where.rows, strict=True)}


def test_forward_runs_down_and_backward_up(step: Graph) -> None:
    made, _, where = laid_out(step)
    for a, b in made.edges:
        lanes = {where.lanes[a], where.lanes[b]}
        if lanes <= {Lane.FORWARD, Lane.FORWARD_EXCHANGE} or lanes == {Lane.UPDATE}:
            assert where.rows[a] < where.rows[b]
        if lanes <= {Lane.BACKWARD, Lane.BACKWARD_EXCHANGE}:
            assert where.rows[a] > where.rows[b]


def test_each_part_has_its_lane(step: Graph) -> None:
    made, _, where = laid_out(step)
    lanes = {box.name: lane for box, lane in zip(made.boxes, where.lanes, strict=True)}
    assert lanes["w0"] is Lane.VARIABLES
    assert lanes["x"] is lanes["tanh"] is lanes["output loss"] is Lane.FORWARD
    assert lanes["einsum.3"] is Lane.BACKWARD
    assert lanes["accumulate"] is lanes["all_reduce"] is Lane.BACKWARD_EXCHANGE
    assert lanes["const"] is lanes["broadcast"] is Lane.SLOTS
    assert lanes["sub"] is lanes["update w0"] is Lane.UPDATE


def test_variables_and_constants_lie_beside_their_first_user(step: Graph) -> None:
    rows = rows_of(step)
    assert rows["w1"] == rows["einsum.1"]
    assert rows["const"] == rows["broadcast"] == rows["mul"]


def test_a_value_lies_near_the_gradient_that_uses_it(deep: Graph) -> None:
    made, _, where = laid_out(deep)
    spans = [
        abs(where.rows[a] - where.rows[b])
        for a, b in made.edges
        if (where.lanes[a], where.lanes[b]) == (Lane.FORWARD, Lane.BACKWARD)
    ]
    assert len(spans) >= 200
    assert max(spans) <= 4


@pytest.mark.parametrize("which", ["step", "nasty", "deep"])
def test_boxes_do_not_overlap(which: str, request: pytest.FixtureRequest) -> None:
    canvas = drawn(request.getfixturevalue(which))
    boxes = sorted(
        (y - h / 2, y + h / 2, x - w / 2, x + w / 2)
        for x, y, w, h in zip(canvas.x, canvas.y, canvas.widths, canvas.heights, strict=True)
    )
    for i, (_, bottom, left, right) in enumerate(boxes):
        for other_top, _, other_left, other_right in boxes[i + 1 :]:
            if other_top >= bottom:
                break
            assert other_right <= left or right <= other_left


@pytest.mark.parametrize("which", ["step", "nasty", "deep"])
def test_boxes_lie_inside_the_picture(which: str, request: pytest.FixtureRequest) -> None:
    canvas = drawn(request.getfixturevalue(which))
    for x, y, w, h in zip(canvas.x, canvas.y, canvas.widths, canvas.heights, strict=True):
        assert x - w / 2 >= 0 and x + w / 2 <= canvas.width
        assert y - h / 2 >= 0 and y + h / 2 <= canvas.height


def test_a_deep_step_stays_narrow(deep: Graph) -> None:
    canvas = drawn(deep)
    assert len(canvas.x) > 2000
    assert canvas.width < 2500


def test_a_wide_row_is_broken() -> None:
    f = Builder()
    x = f.add(Input("x"), type=TensorType((4,), F32), name="x")
    parts = [f.exp(x) for _ in range(40)] + [x * float(i) for i in range(40)]
    f.outputs["y"] = f.aggregate(*parts).name
    _, links, where = laid_out(f.build())
    lines = where.lines(links)
    wide = [key for key, found in lines.items() if sum(map(len, found)) > ABREAST]
    assert wide
    for (lane, row), found in lines.items():
        assert sorted(i for line in found for i in line) == sorted(where.order[lane, row])
        if lane is Lane.FORWARD:
            assert max(map(len, found)) <= ABREAST
        else:
            assert len(found) <= STACKED


def test_a_chain_in_one_row_stays_together(step: Graph) -> None:
    made, links, where = laid_out(step)
    for (lane, _), found in where.lines(links).items():
        if lane is Lane.SLOTS:
            for line in found:
                names = [made.boxes[i].name.split(".")[0] for i in line]
                assert names == ["const", "broadcast"] * (len(names) // 2)


def test_a_graph_without_inputs_is_drawn() -> None:
    f = Builder()
    f.outputs["y"] = f.exp(f.exp(f.constant(1.0))).name
    rows = rows_of(f.build())
    assert set(rows) == {"const", "exp", "exp.1", "output y"}
    assert min(rows.values()) == 0
