"""Every picture holds every value and edge, is well-formed, and treats names as data."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

from graphc.inspect.pictures import FORMATS, Level, to_dot, to_json, to_mermaid, to_svg
from graphc.inspect.scene import Kind, ScenePart, clean, scene
from graphc.ir.graph import Graph, Variable
from graphc.ir.placement import Mesh
from graphc.ir.types import F32, TensorType
from graphc.text import parse_ir, print_ir

SVG = "{http://www.w3.org/2000/svg}"


def values_and_ends(graph: Graph) -> int:
    return len(graph) + len(graph.outputs) + len(graph.updates) + len(graph.objectives)


def operands_and_ends(graph: Graph) -> int:
    return sum(len(n.operands) for n in graph) + values_and_ends(graph) - len(graph)


# -- scene --------------------------------------------------------------------------------------


def test_a_scene_has_a_box_per_value_and_end_and_an_edge_per_operand(step: Graph) -> None:
    made = scene(step)
    assert len(made.boxes) == values_and_ends(step)
    assert len(made.edges) == operands_and_ends(step)
    assert all(a < b for a, b in made.edges)


def test_boxes_know_their_kind_and_part(step: Graph) -> None:
    boxes = {box.name: box for box in scene(step).boxes}
    assert [boxes[n].kind for n in ("x", "w0", "const", "tanh")] == [
        Kind.INPUT, Kind.VARIABLE, Kind.CONSTANT, Kind.COMPUTE,
    ]  # fmt: skip
    assert (boxes["accumulate"].kind, boxes["all_reduce"].kind) == (Kind.TIME, Kind.SPACE)
    assert boxes["update w0"].kind is boxes["output loss"].kind is Kind.END
    assert (boxes["tanh"].part, boxes["einsum.3"].part) == (ScenePart.FORWARD, ScenePart.BACKWARD)
    assert boxes["update w0"].part is ScenePart.UPDATE
    assert boxes["all_reduce"].inserted and not boxes["tanh"].inserted


def test_a_box_says_what_the_text_says(step: Graph) -> None:
    boxes = {box.name: box for box in scene(step).boxes}
    assert boxes["einsum"].lines == ("%einsum", "einsum bk,kn->bn", "f32[batch=8,4]")
    assert boxes["accumulate"].lines[1:] == ("accumulate turn", "f32[4,4]", "{data:P}")
    assert boxes["all_reduce"].tooltip.splitlines() == [
        "%all_reduce : f32[4,4]",
        '= all_reduce %accumulate {axis="data"}',
        "because partition: P -> R, for %update: the update needs it whole",
        "scope grad",
    ]
    assert boxes["tanh"].tooltip.endswith("from stack.gc:1:5")


def test_unprintable_characters_are_replaced() -> None:
    assert clean("a\nb\x00\u2028\ud800é") == "a\ufffdb\ufffd\ufffd\ufffdé"


# -- all formats --------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [None, Level.VALUES])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_deterministic_text(name: str, level: Level | None, step: Graph) -> None:
    text = FORMATS[name](step, level)
    assert text == FORMATS[name](parse_ir(print_ir(step, locs=True)), level)
    assert text.endswith("\n")
    text.encode("utf-8")


@pytest.mark.parametrize("level", [None, Level.VALUES])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_draws_an_empty_graph_and_one_value(name: str, level: Level | None) -> None:
    assert FORMATS[name](Graph(), level)
    assert FORMATS[name](parse_ir("graphc-ir 1 graph g { %a : f32[] = const {value=1.0} }"), level)


@pytest.mark.parametrize("level", [None, Level.VALUES])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_draws_what_is_still_to_be_differentiated(
    name: str, level: Level | None
) -> None:
    text = """graphc-ir 1 graph g { param w : f32[] %w : f32[] = variable {source_name="w"}
      minimize %w with data(dtype="f32", shape=(), base64="") over w }"""
    assert "data(dtype" in FORMATS[name](parse_ir(text), level) or name in (
        "mermaid",
        "json",
        "dot",
    )


@pytest.mark.parametrize("level", [None, Level.VALUES])
@pytest.mark.parametrize("name", FORMATS)
def test_hostile_names_stay_data(name: str, level: Level | None, nasty: Graph) -> None:
    text = FORMATS[name](nasty, level)
    text.encode("utf-8")
    assert "\x00" not in text
    if name in ("svg", "mermaid"):
        assert "<script" not in text


# -- DOT ----------------------------------------------------------------------------------------

DOT_STRING = r'"(?:[^"\\]|\\.)*"'
DOT_ATTRIBUTES = rf"\[\w+={DOT_STRING}(?:, \w+=(?:{DOT_STRING}|[\w.]+))*\]"
DOT_LINE = re.compile(
    rf"(?:digraph graphc {{|}}|  n\d+ {DOT_ATTRIBUTES};|  n\d+ -> n\d+;|  (?:node|edge) "
    rf"{DOT_ATTRIBUTES};|  label={DOT_STRING}; labelloc=t; rankdir=TB;)"
)


@pytest.mark.parametrize("which", ["step", "nasty"])
def test_dot_is_well_formed(which: str, request: pytest.FixtureRequest) -> None:
    graph: Graph = request.getfixturevalue(which)
    lines = to_dot(scene(graph)).splitlines()
    assert [line for line in lines if not DOT_LINE.fullmatch(line)] == []
    nodes = [line for line in lines if re.match(r"  n\d+ \[", line)]
    assert len(nodes) == values_and_ends(graph)
    assert sum(" -> " in re.sub(DOT_STRING, "", line) for line in lines) == operands_and_ends(graph)


def test_dot_labels_read_back(nasty: Graph) -> None:
    label = re.search(rf"label=({DOT_STRING})", to_dot(scene(nasty)))
    assert label
    read = re.sub(r"\\(.)", r"\1", label[1][1:-1]).replace("&amp;", "&")
    assert read == clean(nasty.name)


# -- Mermaid ------------------------------------------------------------------------------------

MERMAID_LABEL = r'"(?:[A-Za-z0-9 _.,:=+*/()-]|#\d+;|<br/>)*"'
MERMAID_LINE = re.compile(
    rf"flowchart TB|  %% [\w ,:]+|  n\d+ --> n\d+|  classDef \w+ [\w:#,. -]+|  class [n\d,]+ \w+"
    rf"|  n\d+(?:\[{MERMAID_LABEL}\]|\(\[{MERMAID_LABEL}\]\)|\[\({MERMAID_LABEL}\)\]"
    rf"|\[\[{MERMAID_LABEL}\]\]):::kind\w+"
)


@pytest.mark.parametrize("which", ["step", "nasty", "deep"])
def test_mermaid_is_well_formed(which: str, request: pytest.FixtureRequest) -> None:
    graph: Graph = request.getfixturevalue(which)
    lines = to_mermaid(scene(graph)).splitlines()
    assert [line for line in lines if not MERMAID_LINE.fullmatch(line)] == []
    assert sum(":::" in line for line in lines) == values_and_ends(graph)
    assert sum("-->" in line for line in lines) == operands_and_ends(graph)
    assert any("maxEdges" in line for line in lines) == (which == "deep")


def test_mermaid_marks_what_a_pass_inserted(step: Graph) -> None:
    inserted = [i for i, box in enumerate(scene(step).boxes) if box.inserted]
    assert f"  class {','.join(f'n{i}' for i in inserted)} inserted\n" in to_mermaid(scene(step))


# -- JSON ---------------------------------------------------------------------------------------


def test_json_holds_the_whole_graph(step: Graph) -> None:
    read = json.loads(to_json(step))
    assert (read["graphc-ir"], read["name"]) == (1, "stack")
    assert read["mesh"][0] == {"name": "data", "size": 4, "over": "space", "link": "memory"}
    assert read["mesh"][1] == {"name": "turn", "size": 2, "over": "time"}
    assert [n["name"] for n in read["nodes"]] == list(step.nodes)
    assert [n["operands"] for n in read["nodes"]] == [list(n.operands) for n in step]
    assert (read["outputs"], read["updates"]) == (step.outputs, step.updates)
    assert [v["name"] for v in read["variables"]] == list(step.variables)
    assert read["nodes"][0] == {
        "name": "x", "op": "input", "attributes": {"source_name": "x"}, "operands": [],
        "type": {
            "text": "f32[batch=8,4]", "shape": [8, 4], "dtype": "f32", "extents": ["batch", None],
            "placement": {},
        },
        "needs": [], "scope": "", "because": None, "origin": None,
        "order": "",
    }  # fmt: skip


def test_json_has_no_word_for_infinity() -> None:
    f: Callable[[float], str] = lambda x: to_json(parse_ir(  # noqa: E731
        f"graphc-ir 1 graph g {{ %a : f32[] = const {{value={x!r}}} }}"
    ))  # fmt: skip
    assert json.loads(f(float("inf")))["nodes"][0]["attributes"] == {"value": "inf", "dtype": "f32"}
    assert json.loads(f(0.5))["nodes"][0]["attributes"]["value"] == 0.5


def test_json_describes_extents() -> None:
    text = "graphc-ir 1 graph g { %s : i32[b*2=2] = iota {shape=(2,), dim=0, extents=(<b*2>,)} }"
    (node,) = json.loads(to_json(parse_ir(text)))["nodes"]
    assert (node["type"]["shape"], node["type"]["extents"]) == ([2], ["b*2"])
    assert node["attributes"]["extents"] == [{"extent": "b", "unit": 2}]


# -- SVG ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["step", "nasty", "deep"])
def test_svg_is_xml_without_scripts(which: str, request: pytest.FixtureRequest) -> None:
    graph: Graph = request.getfixturevalue(which)
    root = ET.fromstring(to_svg(scene(graph)))
    assert root.tag == f"{SVG}svg"
    tags = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert tags == {"svg", "title", "style", "defs", "marker", "path", "rect", "text", "g"}
    assert not any(key.startswith("on") or "href" in key for e in root.iter() for key in e.attrib)
    assert len(root.findall(f"{SVG}g")) == values_and_ends(graph)
    assert len(root.findall(f"{SVG}path")) == operands_and_ends(graph)


def test_svg_tooltips_say_all(step: Graph) -> None:
    titles = [t.text or "" for t in ET.fromstring(to_svg(scene(step))).iter(f"{SVG}title")]
    assert any("because partition: P -> R, for %update" in t for t in titles)
    assert any("from stack.gc:1:5" in t for t in titles)


def test_svg_clips_long_lines() -> None:
    name = "w" * 500
    v = Variable(name, TensorType((), F32))
    text = f"graphc-ir 1 graph g {{ param {v.name} : f32[] %{name} : f32[] = neg %{name} }}"
    texts = ET.fromstring(to_svg(scene(parse_ir(text)))).iter(f"{SVG}text")
    assert max(len(t.text or "") for t in texts) <= 36


def test_a_mesh_stands_in_the_title(step: Graph) -> None:
    assert "mesh(data=4, turn=2 over time)" in to_svg(scene(step))
    assert str(Mesh()) not in to_svg(scene(Graph()))
