"""Folding: at every level each value is drawn once, every path of the graph is one of the picture,
and a level shows the parts of the coarser one."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

from graphc.compiler.driver import stages
from graphc.frontend.language.load import load_module
from graphc.inspect.folding import (
    Fold,
    GroupTree,
    Level,
    fitting,
    folded,
    group_tree,
    open_at,
)
from graphc.inspect.scene import Kind, Scene, ScenePart
from graphc.inspect.svg import to_svg
from graphc.ir.builder import Builder
from graphc.ir.graph import Graph, Variable
from graphc.ir.types import F32, I32, TensorType
from graphc.ops.collective import Conversion
from graphc.ops.source import Input
from graphc.strategies import parse_strategy

ROOT = Path(__file__).parent.parent.parent


@cache
def passed(file: str, strategy: str, program: str = "train") -> dict[str, Graph]:
    """An example after each pass."""
    module = load_module(ROOT / "examples" / file)
    return dict(stages(module, parse_strategy(strategy), program))


def after_partition(file: str = "digits.gc", strategy: str = "mirrored(4)") -> Graph:
    return passed(file, strategy)["partition"]


def scenes(graph: Graph) -> Iterator[tuple[GroupTree, Scene]]:
    tree = group_tree(graph)
    for level in Level:
        yield tree, folded(tree, open_at(tree, level))


def drawn(seed: int) -> Graph:
    """A random graph with functions in functions, composites, variables and results."""
    r, f = random.Random(seed), Builder("random")
    t = TensorType((4, 4), F32)
    values = [f.add(Input(f"x{i}"), type=t, name=f"x{i}") for i in range(2)]
    values += [f.declare(Variable(f"w{i}", t)) for i in range(3)]

    def grow(depth: int) -> None:
        for _ in range(r.randint(1, 5)):
            match r.randrange(6):
                case 0 if depth < 4:
                    with f.calls.function(r.choice(["block", "head", "a/b"])):
                        grow(depth + 1)
                case 1:
                    values.append(f.softmax(r.choice(values)))
                case 2:
                    values.append(f.broadcast_to(f.constant(2.0), (4, 4)))
                case 3:
                    values.append(f.cast(f.cast(r.choice(values), dtype=I32), dtype=F32))
                case _:
                    values.append(f.add_(r.choice(values), r.choice(values)))

    grow(0)
    for i, x in enumerate(r.sample(values, min(3, len(values)))):
        f.outputs[f"y{i}"] = x.name
    if r.random() < 0.5:
        f.updates["w0"] = values[-1].name
    return f.build()


# -- laws ------------------------------------------------------------------------------------------


def check_laws(graph: Graph) -> None:
    finer: dict[str, int] = {}
    tree = group_tree(graph)
    for level in reversed(Level):
        scene = folded(tree, open_at(tree, level))
        place = check_each_value_is_drawn_once(graph, tree, scene)
        check_edges_are_those_of_the_graph(tree, scene)
        check_paths_are_kept(graph, tree, scene)
        check_refines(place, finer)
        finer = place
    again = group_tree(graph)
    assert folded(again, open_at(again, Level.MODEL)) == scene


def check_each_value_is_drawn_once(graph: Graph, tree: GroupTree, scene: Scene) -> dict[str, int]:
    """The box of each value that is in one."""
    in_boxes = Counter(x for box in scene.boxes for x in box.holds)
    on_edges = Counter(x for edge in scene.details for x in edge.carried)
    seen = in_boxes + on_edges
    assert not seen or max(seen.values()) == 1
    unseen = {i for i, item in enumerate(tree.items) if item.name not in seen}
    for i in unseen:  # nothing but others of these takes them
        assert tree.items[i].carried
    for i, item in enumerate(tree.items):
        assert i in unseen or not unseen & set(item.operands)
    for item, node in zip(tree.items, graph, strict=False):
        assert item.carried or item.name in in_boxes
        assert not (item.carried and isinstance(node.op, Conversion) and node.op.communicates)
    return {x: i for i, box in enumerate(scene.boxes) for x in box.holds}


def check_edges_are_those_of_the_graph(tree: GroupTree, scene: Scene) -> None:
    box = {x: i for i, b in enumerate(scene.boxes) for x in b.holds}
    wanted = set()
    for item in tree.items:
        for x in item.operands:
            source = tree.items[x].source
            if not item.carried and source >= 0:
                wanted.add((box[tree.items[source].name], box[item.name]))
    assert set(scene.edges) == {(a, b) for a, b in wanted if a != b}
    assert len(scene.edges) == len(set(scene.edges)) == len(scene.details)
    assert all(edge.count > 0 and edge.bytes > 0 for edge in scene.details)


def check_paths_are_kept(graph: Graph, tree: GroupTree, scene: Scene) -> None:
    """Where a path leads from a value to another, one leads from the box to the other box."""
    box = {x: i for i, b in enumerate(scene.boxes) for x in b.holds}
    boxes: nx.DiGraph[int] = nx.DiGraph(scene.edges)
    boxes.add_nodes_from(range(len(scene.boxes)))
    shown = [item.name for item in tree.items[: len(graph)] if not item.carried]
    for start in shown[:: max(1, len(shown) // 7)]:
        reached = nx.descendants(boxes, box[start]) | {box[start]}
        assert {box[x] for x in nx.descendants(graph.nx, start) if x in shown} <= reached


def check_refines(coarse: dict[str, int], fine: dict[str, int]) -> None:
    """Values that share a box in the finer picture share one in the coarser."""
    together: dict[int, set[int]] = {}
    for x, box in fine.items():
        if x in coarse:
            together.setdefault(box, set()).add(coarse[x])
    assert all(len(boxes) == 1 for boxes in together.values())


@pytest.mark.parametrize("seed", range(40))
def test_laws_on_random_graphs(seed: int) -> None:
    check_laws(drawn(seed))


@pytest.mark.parametrize(
    ("file", "strategy"),
    [
        ("digits.gc", "mirrored(4)"),
        ("digits.gc", "zero(2, stage=3)"),
        ("digits.gc", "diloco(2)"),
        pytest.param("digits.gc", "one_device()", marks=pytest.mark.ci),
        pytest.param("digits.gc", "mirrored(4) * reproducible(8)", marks=pytest.mark.ci),
        pytest.param("digits_cnn.gc", "mirrored(2) * accumulate(2)", marks=pytest.mark.ci),
        pytest.param("pages.gc", "mirrored(2) * tensor_split(2)", marks=pytest.mark.ci),
        pytest.param("autoencoder.gc", "zero(2, stage=1)", marks=pytest.mark.slow),
        pytest.param("cells.gc", "central_storage(2)", marks=pytest.mark.slow),
        pytest.param(
            "digits_cnn.gc", "parameter_server(2, 2, staleness=1)", marks=pytest.mark.slow
        ),
        pytest.param("digits_cnn.gc", "multi_worker_mirrored(2, 2)", marks=pytest.mark.slow),
    ],
)
def test_laws_on_an_example_after_every_pass(file: str, strategy: str) -> None:
    for graph in passed(file, strategy).values():
        check_laws(graph)


@pytest.mark.parametrize("which", ["step", "nasty"])
def test_laws_on_odd_graphs(which: str, request: pytest.FixtureRequest) -> None:
    check_laws(request.getfixturevalue(which))


def test_an_empty_graph_is_an_empty_picture() -> None:
    for _, scene in scenes(Graph()):
        assert (scene.boxes, scene.edges) == ((), ())


# -- time ------------------------------------------------------------------------------------------


def seconds(blocks: int) -> float:
    """What folding takes, and drawing the model, in the best of three runs."""
    graph = stacked(blocks)
    taken = []
    for _ in range(3):
        start = time.process_time()
        tree = group_tree(graph)
        to_svg(folded(tree, open_at(tree, Level.MODEL)))
        folded(tree, open_at(tree, Level.OPS))
        taken.append(time.process_time() - start)
    return min(taken)


@pytest.mark.parametrize(
    ("small", "large", "factor"),
    [
        pytest.param(50, 500, 25, marks=pytest.mark.ci),  # some 700 and 7,000 nodes
        pytest.param(700, 7000, 25, marks=pytest.mark.slow),  # some 10,000 and 100,000
    ],
)
def test_ten_times_the_nodes_take_about_ten_times_as_long(
    small: int, large: int, factor: float
) -> None:
    assert seconds(large) < factor * seconds(small)


# -- what a person sees ----------------------------------------------------------------------------


def titles(scene: Scene, part: ScenePart) -> list[str]:
    return [box.lines[0] for box in scene.boxes if box.part is part]


def test_the_model_of_digits_reads_on_one_screen() -> None:
    tree = group_tree(after_partition())
    scene = folded(tree, open_at(tree, Level.MODEL))
    assert titles(scene, ScenePart.FORWARD) == [
        "x", "y", "dense", "relu", "dense.1", "cross_entropy", "mean", "2 all_reduce", "argmax, eq",
        "mean.1", "loss", "accuracy",
    ]  # fmt: skip
    assert titles(scene, ScenePart.BACKWARD) == [
        "cross_entropy", "dense.1", "4 all_reduce", "relu", "dense",
    ]  # fmt: skip
    assert titles(scene, ScenePart.UPDATE) == ["adam × 4"]


@pytest.mark.parametrize(
    ("strategy", "collectives"), [("mirrored(4)", 6), ("zero(2, stage=3)", 10)]
)
def test_a_collective_is_a_box_of_its_own_at_every_level(strategy: str, collectives: int) -> None:
    for tree, scene in scenes(after_partition(strategy=strategy)):
        for box in scene.boxes:
            kinds = {tree.items[i].kind for i in tree.members[box.group]}
            assert kinds == {Kind.SPACE} if box.kind is Kind.SPACE else Kind.SPACE not in kinds
    assert len([b for b in scene.boxes if b.kind is Kind.SPACE]) == collectives


def test_the_bytes_of_collectives_are_those_of_the_plan() -> None:
    from graphc.compiler.driver import compile_module

    leaves, per_use = "reproducible(4) * mirrored(2)", "zero(2, stage=3)"
    for strategy in ("mirrored(4)", f"{leaves} * accumulate(2)", f"{per_use} * accumulate(2)"):
        *_, final = passed("linear.gc", strategy).values()
        tree = group_tree(final)
        plan = compile_module(load_module(ROOT / "examples/linear.gc"), parse_strategy(strategy))
        assert round(sum(tree.sent.values())) == plan.sent_bytes


def stacked(blocks: int, width: int = 8) -> Graph:
    """Blocks of one structure after a layer of another."""
    f = Builder("stack")
    x = f.add(Input("x"), type=TensorType((4, width), F32), name="x")
    with f.calls.function("embed"):
        x = f.relu(f.dense(x, *(f.declare(v) for v in _weights("embed", width))))
    for i in range(blocks):
        with f.calls.function("block"):
            y = f.softmax(f.dense(x, *(f.declare(v) for v in _weights(f"b{i}", width))))
            x = f.add_(x, y)
    f.outputs["y"] = x.name
    return f.build()


def _weights(name: str, width: int) -> list[Variable]:
    w = TensorType((width, width), F32)
    return [Variable(f"{name}.w", w), Variable(f"{name}.b", TensorType((width,), F32))]


def test_repeated_blocks_are_one_box_with_a_count() -> None:
    tree = group_tree(stacked(4))
    scene = folded(tree, open_at(tree, Level.MODEL))
    assert titles(scene, ScenePart.FORWARD) == ["x", "embed", "block × 4", "y"]
    (repeat,) = (g for g in tree.groups if g.fold is Fold.REPEAT)
    assert repeat.count == len(repeat.children) == 4
    graphs = [inside(tree, child) for child in repeat.children]
    for other in graphs[1:]:
        assert nx.is_isomorphic(graphs[0], other, node_match=lambda a, b: a == b)


def inside(tree: GroupTree, group: int) -> nx.DiGraph[int]:
    """The values of a group and what takes what, with their ops."""
    members = set(tree.members[group])
    graph: nx.DiGraph[int] = nx.DiGraph()
    for i in members:
        node = tree.items[i].node
        assert node is not None
        graph.add_node(i, op=node.op.name, type=node.type.shape)
    for i in members:
        sources = {tree.items[x].source for x in tree.items[i].operands}
        graph.add_edges_from((s, i) for s in sources & members)
    return graph


def test_any_group_can_be_opened_alone() -> None:
    tree = group_tree(stacked(3))
    opened = set(open_at(tree, Level.MODEL))
    (repeat,) = (i for i, g in enumerate(tree.groups) if g.fold is Fold.REPEAT)
    scene = folded(tree, opened | {repeat})
    assert titles(scene, ScenePart.FORWARD) == ["x", "embed", "block", "block.1", "block.2", "y"]
    one = folded(tree, opened | {repeat, tree.groups[repeat].children[1]})
    inner = titles(one, ScenePart.FORWARD)
    assert {"block", "block.2", "dense", "softmax"} <= set(inner) and "block.1" not in inner


def test_constants_broadcasts_and_casts_are_no_boxes() -> None:
    tree = group_tree(after_partition())
    scene = folded(tree, open_at(tree, Level.OPS))
    ops = {node.op.name for box in scene.boxes if (node := tree.items[
        tree.groups[box.group].item].node) is not None}  # fmt: skip
    assert not ops & {"const", "broadcast", "cast", "iota", "dim_size", "gradient"}
    labels = {edge.label for edge in scene.details}
    assert {"", "broadcast", "cast"} <= labels
    (relu,) = (box for box in scene.boxes if box.name == "h")
    assert relu.lines[1] == "maximum ‹0›"


def test_the_deepest_level_that_fits_is_chosen() -> None:
    tree = group_tree(after_partition())
    assert fitting(tree) is Level.LAYERS
    assert fitting(tree, most=10_000) is Level.OPS
    assert fitting(tree, most=1) is Level.MODEL
