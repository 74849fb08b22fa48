"""Folded pictures at every level: boxes do not overlap, texts fit in them, every format is well
formed, and a gradient lies beside what it is the gradient of."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path

import pytest

from graphc.compiler.driver import stages
from graphc.frontend.language.load import load_module
from graphc.inspect.layout import Lane, Links, layout
from graphc.inspect.pictures import FORMATS, Level, picture, to_dot, to_mermaid, to_svg
from graphc.inspect.scene import Scene, ScenePart
from graphc.inspect.svg import Canvas
from graphc.ir.graph import Graph
from graphc.strategies import parse_strategy

ROOT = Path(__file__).parent.parent.parent
SVG = "{http://www.w3.org/2000/svg}"
LEVELS = [Level.MODEL, Level.LAYERS, Level.OPS]
CASES = [
    ("digits.gc", "mirrored(4)", "train"),
    ("digits.gc", "zero(2, stage=3)", "train"),
    ("digits.gc", "parameter_server(2, 2, staleness=1)", "server.0"),
    pytest.param("digits_cnn.gc", "mirrored(2) * accumulate(2)", "train", marks=pytest.mark.ci),
    pytest.param("pages.gc", "diloco(2)", "train", marks=pytest.mark.ci),
]


@cache
def partitioned(file: str, strategy: str, program: str) -> Graph:
    module = load_module(ROOT / "examples" / file)
    return dict(stages(module, parse_strategy(strategy), program))["partition"]


def drawn(scene: Scene) -> Canvas:
    links = Links.of(scene)
    canvas = Canvas(scene, layout(scene, links))
    canvas.measure(links)
    return canvas


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("file", "strategy", "program"), CASES)
def test_boxes_are_apart_and_inside(file: str, strategy: str, program: str, level: Level) -> None:
    canvas = drawn(picture(partitioned(file, strategy, program), level))
    boxes = sorted(
        (y - h / 2, y + h / 2 + card, x - w / 2, x + w / 2 + card)
        for x, y, w, h, card in zip(
            canvas.x, canvas.y, canvas.widths, canvas.heights, canvas.cards, strict=True
        )
    )
    for i, (top, bottom, left, right) in enumerate(boxes):
        assert left >= 0 and right <= canvas.width and top >= 0 and bottom <= canvas.height
        for other_top, _, other_left, other_right in boxes[i + 1 :]:
            if other_top >= bottom:
                break
            assert other_right <= left or right <= other_left


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("file", "strategy", "program"), CASES)
def test_the_svg_is_xml_whose_texts_fit(
    file: str, strategy: str, program: str, level: Level
) -> None:
    scene = picture(partitioned(file, strategy, program), level)
    root = ET.fromstring(to_svg(scene))
    groups = root.findall(f"{SVG}g")
    assert len(groups) == len(scene.boxes)
    assert len(root.findall(f"{SVG}path")) == len(scene.edges)
    for group in groups:
        box = group.findall(f"{SVG}rect")[-1]
        for text in group.findall(f"{SVG}text"):
            weight = 1.06 if text.get("class") == "name" else 1.0  # bold
            assert 6.02 * weight * len(text.text or "") <= float(box.get("width", 0))


@pytest.mark.parametrize("level", LEVELS)
def test_other_formats_have_the_same_boxes_and_edges(level: Level) -> None:
    graph = partitioned(*CASES[0])  # type: ignore[misc]
    scene = picture(graph, level)
    dot, mermaid = to_dot(scene).splitlines(), to_mermaid(scene).splitlines()
    read = json.loads(FORMATS["json"](graph, level))["picture"]
    edges = set(scene.edges)
    found = (re.match(r"  n(\d+) -> n(\d+)(?: \[label=.*\])?;$", line) for line in dot)
    assert {(int(m[1]), int(m[2])) for m in found if m} == edges
    found = (re.match(r'  n(\d+) -->(?:\|"[^"|]*"\|)? n(\d+)$', line) for line in mermaid)
    assert {(int(m[1]), int(m[2])) for m in found if m} == edges
    assert {(e["from"], e["to"]) for e in read["edges"]} == edges
    assert sum(bool(re.match(r"  n\d+ \[", line)) for line in dot) == len(scene.boxes)
    assert [box["id"] for box in read["boxes"]] == [box.name for box in scene.boxes]


def test_a_gradient_lies_in_the_row_of_what_it_is_the_gradient_of() -> None:
    scene = picture(partitioned(*CASES[0]), Level.MODEL)  # type: ignore[misc]
    where = layout(scene, Links.of(scene))
    pairs = [(i, box.beside) for i, box in enumerate(scene.boxes) if box.beside >= 0]
    assert [scene.boxes[i].lines[0] for i, _ in pairs] == [
        "cross_entropy", "dense.1", "relu", "dense",
    ]  # fmt: skip
    for gradient, forward in pairs:
        assert scene.boxes[gradient].lines[0] == scene.boxes[forward].lines[0]
        assert where.rows[gradient] == where.rows[forward]
        assert (where.lanes[forward], where.lanes[gradient]) == (Lane.FORWARD, Lane.BACKWARD)


def test_the_model_runs_down_and_its_gradients_up() -> None:
    scene = picture(partitioned(*CASES[0]), Level.MODEL)  # type: ignore[misc]
    where = layout(scene, Links.of(scene))
    for a, b in scene.edges:
        if where.lanes[a] == where.lanes[b] == Lane.FORWARD:
            assert where.rows[a] < where.rows[b]
        if where.lanes[a] == where.lanes[b] == Lane.BACKWARD:
            assert where.rows[a] > where.rows[b]
    assert all(where.lanes[i] is Lane.UPDATE for i, box in enumerate(scene.boxes)
               if box.part is ScenePart.UPDATE)  # fmt: skip


def test_what_is_repeated_is_a_stack_of_cards() -> None:
    scene = picture(partitioned(*CASES[0]), Level.MODEL)  # type: ignore[misc]
    groups = ET.fromstring(to_svg(scene)).findall(f"{SVG}g")
    cards = {g.findall(f"{SVG}text")[0].text: len(g.findall(f"{SVG}rect")) for g in groups}
    assert (cards["adam × 4"], cards["4 all_reduce"], cards["relu"]) == (3, 3, 1)
