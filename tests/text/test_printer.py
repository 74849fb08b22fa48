"""The text of a graph: what is printed reads back as it was."""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from graphc.ir.builder import Builder
from graphc.ir.graph import Because, Graph, Node, Objective, Variable
from graphc.ir.op import _OPS, _RECORDS, Op, op_named, record, register
from graphc.ir.orders import parse_orders
from graphc.ir.placement import (
    Axis,
    Home,
    Mesh,
    Partial,
    Placement,
    Split,
    State,
    Varying,
)
from graphc.ir.types import (
    DTYPES,
    F32,
    I32,
    I64,
    Extent,
    TensorType,
)
from graphc.ops.collective import AllReduce, Mask
from graphc.ops.source import Const, ConstArray, Data, DimSize, Input, Iota, ReadVariable
from graphc.support.errors import GraphcError, Span
from graphc.text import parse_ir, print_ir, print_nodes
from graphc.text.printer import MAX_DEPTH, value_text
from graphc.verify import verify

BATCH = Extent("batch")


def round_trip(graph: Graph) -> str:
    """The text of a graph, after checking both laws of the text."""
    text = print_ir(graph, locs=True)
    again = parse_ir(text)
    assert again == graph
    assert print_ir(again, locs=True) == text
    return text


def one_node(op: Op, type: TensorType | None = None, **fields: Any) -> Graph:
    node = Node("y", op, (), type or TensorType((), F32), **fields)
    return Graph("g", nodes={"y": node})


def test_the_text_of_a_small_step(small_step: Graph) -> None:
    assert print_ir(small_step, locs=True) == (
        """graphc-ir 1

graph digits mesh(data=4, turn=2 over time) {
  param w : f32[4,2]  @ d.gc:2:5

  %w          : f32[4,2]       = variable {source_name="w"}
  %x          : f32[batch=8,4] = input {source_name="x"}
  %einsum     : f32[batch=8,2] = einsum %x, %w {spec="bk,kn->bn"}  scope layer/0  @ d.gc:3:7+5
  %tanh       : f32[batch=8,2] = tanh %einsum  scope layer/0  @ d.gc:3:7+5
  %reduce_sum : f32[]          = reduce_sum %tanh {over=(0, 1)}

  output loss = %reduce_sum
}
"""
    )


def test_a_small_step_reads_back(small_step: Graph) -> None:
    round_trip(small_step)


def test_without_locs_only_the_origins_are_missing(small_step: Graph) -> None:
    def bare(graph: Graph) -> Graph:
        def strip(table: dict[str, Any]) -> dict[str, Any]:
            return {k: dataclasses.replace(v, origin=None) for k, v in table.items()}

        return dataclasses.replace(
            graph, nodes=strip(graph.nodes), variables=strip(graph.variables)
        )

    assert parse_ir(print_ir(small_step)) == bare(small_step) != small_step


def test_an_empty_graph_reads_back() -> None:
    assert round_trip(Graph()) == "graphc-ir 1\n\ngraph step {\n\n}\n"


# -- every field --------------------------------------------------------------------------------

DATA_SPLIT = Placement((("data", Split(0)),))
FULL_NODE = Node(
    "y", AllReduce("data", "max"), ("x", "x"), TensorType((2,), F32, (BATCH,), DATA_SPLIT),
    scope="grad/layer", origin=Span("a.gc", 3, 4, 5),
    because=Because("partition", "P -> R", "z", "z needs it", 1, "", DATA_SPLIT, Placement()),
    needs=(DATA_SPLIT, Placement()), order=parse_orders("turns=tree"),
)  # fmt: skip
FULL_VARIABLE = Variable(
    "w.m",
    TensorType((), F32),
    "slot",
    of="w",
    decay=False,
    fill=0.5,
    origin=Span("a.gc", 1),
    order=parse_orders("tree"),
    aggregation="mean",
    on="read",
    sparse="off",
)
FULL_OBJECTIVE = Objective(
    "y",
    (1, 2.5),
    ("w", "v"),
    parse_orders("tree"),
    Span("a.gc", 9, 2),
    "mean",
    "on",
    ("x", "y"),
    3,
)


@pytest.mark.parametrize("full", [FULL_NODE, FULL_VARIABLE, FULL_OBJECTIVE])
def test_the_cases_below_set_every_field(full: Any) -> None:
    for f in dataclasses.fields(full):
        assert f.default is dataclasses.MISSING or getattr(full, f.name) != f.default, f.name


def test_every_field_of_a_node_a_variable_and_an_objective_reads_back() -> None:
    graph = Graph(
        "g", Mesh((Axis("data", 2),)), {"y": FULL_NODE}, {"w.m": FULL_VARIABLE}, {"o": "y"},
        {"w.m": "y"}, (FULL_OBJECTIVE, FULL_OBJECTIVE),
    )  # fmt: skip
    text = round_trip(graph)
    for piece in (
        "slot w.m : f32[] of w no decay order tree fill 0.5 aggregate mean on read sparse off  @ a.gc:1:1\n",
        '{axis="data", op="max"}  needs {data:S(0)}, {}  scope grad/layer  order "turns=tree"  '
        'because partition: "P -> R" for %z operand 1: "z needs it" from {data:S(0)} to {}'
        "  @ a.gc:3:4+5\n",
        "minimize %y with (1, 2.5) of %x, %y over w, v order tree reduction mean sparse on every 3  @ a.gc:9:2\n",
    ):
        assert piece in text


PARTS = [
    Because("p", "r"), Because("p", "", "", "why"), Because("p", "r", "w", end="update"),
    Because("p", "r", "an odd name", "why", end="output", have=DATA_SPLIT, need=Placement()),
    Because("p", "r", "z", operand=0), Because("p", "r", have=Placement(), need=DATA_SPLIT), None,
]  # fmt: skip


@pytest.mark.parametrize("because", PARTS)
def test_parts_of_because_may_be_missing(because: Because | None) -> None:
    text = round_trip(one_node(Const(1.0), because=because))
    if because and because.end:
        assert f" for {because.end} " in text


STATES: list[State] = [Split(0), Split(12), Partial(), Partial("max"), Partial("min"), Varying(),
                       Home(), Home(3)]  # fmt: skip


@pytest.mark.parametrize("state", STATES)
def test_every_placement_state_reads_back(state: State) -> None:
    t = TensorType((3, 4), I32, (None, Extent("rows", 4)), Placement((("a", state),)))
    round_trip(one_node(Const(1), t))


@pytest.mark.parametrize("dtype", DTYPES.values())
def test_every_dtype_reads_back(dtype: Any) -> None:
    round_trip(one_node(Const(0, dtype), TensorType((), dtype)))


# -- values -------------------------------------------------------------------------------------

VALUES = [
    (0.1, "0.1"), (1e300, "1e+300"), (-0.0, "-0.0"), (5e-324, "5e-324"), (1.0, "1.0"),
    (math.inf, "inf"), (-math.inf, "-inf"), (1, "1"), (-(2**70), str(-(2**70))), (True, "true"),
    (False, "false"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), VALUES)
def test_numbers_keep_value_and_kind(value: Any, text: str) -> None:
    printed = round_trip(one_node(Const(value)))
    assert f"{{value={text}}}" in printed
    read = parse_ir(printed)["y"].op.attributes["value"]
    assert type(read) is type(value)
    assert math.copysign(1, read) == math.copysign(1, value)


def test_nan_reads_back_as_nan() -> None:
    text = print_ir(one_node(Const(math.nan)))
    assert "{value=nan}" in text
    assert print_ir(parse_ir(text)) == text


def test_defaults_are_left_out_but_not_what_only_equals_them() -> None:
    assert "mask {dim=0, fill=0.0}" in round_trip(one_node(Mask(0, 0.0)))
    assert "dim_size {size=4}" in round_trip(one_node(DimSize(4)))
    assert value_text(True) != value_text(1) != value_text(1.0)


def test_extents_tuples_none_and_dtypes_read_back() -> None:
    op = Iota((8, 6), 1, I64, (Extent("batch"), Extent("odd name", 3)))
    text = round_trip(one_node(op, TensorType((8, 6), I64)))
    assert '{shape=(8, 6), dim=1, dtype=i64, extents=(<batch>, <"odd name"*3>)}' in text
    assert "shape=(8,)" in round_trip(one_node(Iota((8,), 0)))
    assert "shape=()" in round_trip(one_node(Iota((), 0)))
    assert "extents=(none, <b>)" in round_trip(one_node(Iota((1, 2), 0, I32, (None, Extent("b")))))


def test_records_read_back() -> None:
    data = Data("f32", (2,), "AACAPwAAAEA=")
    text = round_trip(one_node(ConstArray(data), TensorType((2,), F32)))
    assert 'data=data(dtype="f32", shape=(2,), base64="AACAPwAAAEA=")' in text


NAMES = [
    "", " ", "a b", '"', "\\", "\n", "%x", "0", "0.w", "-", "/", "layers/0/w-1.b", "θ", "é\u0301",
    "\ud800", "\u202e", "#", "//", "}", "f32", "none", "true", "graph", "of", "no", "output", "in",
    "update", "minimize", "scope", "over", "with", "order", "param", "sparse", "mesh", "x" * 300,
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_any_name_reads_back_anywhere(name: str) -> None:
    why = Because(name, name, name, name)
    mesh = Mesh((Axis(name, 2), Axis("t", 2, "time")))
    t = TensorType((2, 4), F32, (Extent(name), Extent(name, 2)), Placement(((name, Split(0)),)))
    span = Span(name, 1, 2, 3)
    nodes = {
        "r": Node("r", ReadVariable(name), (), t, name, span, why),
        name: Node(name, Const(1.0), ("r", name, "r"), t, name, span, why, (t.placement,)),
    }
    variables = {name: Variable(name, t, "slot", name, True, 0.0, span)}
    objectives = (Objective(name, name, (name, "b"), origin=span),)
    round_trip(Graph(name, mesh, nodes, variables, {name: name}, {name: name}, objectives))


# -- records inside -----------------------------------------------------------------------------


@pytest.fixture
def known() -> Iterator[tuple[type[Any], type[Any]]]:
    """An op that holds a record, and a record; known for one test only."""

    @register
    class Warm(op_named("input")):  # type: ignore[misc]
        """`y` is a rate"""

        name = "warm"
        source = ""
        source_name: str = ""
        rate: Any = None
        not_differentiable = "a test has no need of it"

    @record
    @dataclasses.dataclass(frozen=True)
    class WarmUp:
        steps: int
        then: Any = 0.1

    yield Warm, WarmUp
    del _OPS["warm"], _RECORDS["warm_up"]


def test_nested_records_read_back(known: tuple[type[Any], type[Any]]) -> None:
    warm, warm_up = known
    text = round_trip(one_node(warm(rate=warm_up(10, warm_up(5, (1, None, "a"))))))
    assert '{rate=warm_up(steps=10, then=warm_up(steps=5, then=(1, none, "a")))}' in text
    assert "rate=warm_up(steps=3)}" in round_trip(one_node(warm(rate=warm_up(3))))


def test_what_has_no_text_is_an_error(known: tuple[type[Any], type[Any]]) -> None:
    warm, _ = known
    with pytest.raises(GraphcError, match="a set has no text form"):
        print_ir(one_node(warm(rate={1})))
    deep: Any = ()
    for _ in range(MAX_DEPTH + 2):
        deep = (deep,)
    with pytest.raises(GraphcError, match="nest deeper than"):
        print_ir(one_node(warm(rate=deep)))


# -- random graphs, hash seeds ------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_are_legal_and_read_back(
    seed: int, random_graph: Callable[[int], Graph]
) -> None:
    graph = random_graph(seed)
    verify(graph)
    text = round_trip(graph)
    assert parse_ir(text).fingerprint() == graph.fingerprint()


def test_the_text_does_not_depend_on_the_hash_seed() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "import conftest as t; from graphc.text import print_ir as p;"
        "print(p(t.make_small_step()), *(p(t.make_random_graph(i)) for i in range(8)))"
    )
    folder = os.path.dirname(__file__)
    texts = {
        subprocess.run(
            [sys.executable, "-c", code, folder],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "4242")
    }
    assert len(texts) == 1


# -- part of a graph ----------------------------------------------------------------------------


def chain(n: int) -> Graph:
    f = Builder()
    x = f.add(Input("x"), type=TensorType((), F32), name="x")
    for i in range(n):
        x = f.add(op_named("exp")(), [x], name=f"e{i}")
    return f.build()


@pytest.mark.parametrize(
    ("around", "lines", "names"),
    [
        ("e5", 5, "e3 e4 >e5 e6 e7"),
        ("x", 5, ">x e0 e1 e2 e3"),
        ("e9", 5, "e5 e6 e7 e8 >e9"),
        ("e5", 1, ">e5"),
        ("e0", 99, "x >e0 e1 e2 e3 e4 e5 e6 e7 e8 e9"),
    ],
)
def test_a_node_is_shown_with_its_neighbors(around: str, lines: int, names: str) -> None:
    shown = print_nodes(chain(10), around, lines).splitlines()
    words = [line.split(":")[0].replace("%", "").replace(" ", "") for line in shown]
    assert " ".join(words) == names
