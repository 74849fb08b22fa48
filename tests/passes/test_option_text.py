"""Passes as text: what is printed for people is read back by `graphc opt` as the same objects."""

from __future__ import annotations

import pytest

from graphc.compiler.pipeline import differentiation, distribution, partitioning
from graphc.ir.orders import Order
from graphc.passes.base import Pass, parse_passes
from graphc.passes.partitioning.partition import Partition
from graphc.passes.partitioning.regather import Regather
from graphc.passes.placing.place import Place
from graphc.strategies import Mirrored, TensorSplit, parse_strategy
from graphc.support.errors import GraphcError

STRATEGIES = [
    "one_device()",
    'mirrored(4, reduce="tree") * accumulate(2, order="add_n")',
    'tensor_split(2, {"w*": 1, "b, c": 0}) * zero(2, stage=3)',
    "parameter_server(2, 2)",
    "parameter_server(2, 2, staleness=none)",
    'mirrored(2, axis="rows") * tensor_split(2) * reproducible(8, tiles=2, cut={"w1": 0})',
    'diloco(2, every=4, outer="sgd(0.1)") * accumulate(2)',
    "zero(2) * precision(f16)",
]


def text_of(passes: list[Pass]) -> str:
    return ",".join(map(str, passes))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_passes_of_a_compile_print_and_read_back(strategy: str) -> None:
    how = parse_strategy(strategy)
    passes = [*differentiation(), *distribution(how, evaluate=True), *partitioning(how, True, 7)]
    assert parse_passes(text_of(passes)) == passes


def test_options_are_objects_and_print_as_text() -> None:
    text = (
        'cse, place{strategy=tensor_split(2, cut={"w": 1})} ,'
        "partition{orders=data=tree+turn=add_n,short=True,scatter_per_microbatch=data+turn},regather{axes=a+b}"
    )
    _, place, partition, regather = passes = parse_passes(text)
    assert place == Place(TensorSplit(2, (("w", 1),)))
    assert partition == Partition(
        (("data", Order.TREE), ("turn", Order.ADD_N)), True, ("data", "turn")
    )
    assert regather == Regather(("a", "b"))
    assert text_of(passes) == text.replace(", place", ",place").replace(" ,", ",")


def test_an_option_may_stand_among_spaces() -> None:
    assert parse_passes("place{ strategy = mirrored(2) }") == [Place(Mirrored(2))]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("bucket{bytes=many}", "G0990"),
        ("lower_precision{dtype=half}", "G0201"),
        ("place{strategy=mirored(2)}", "G0401"),
        ("place{strategy=mirrored(2}", "G0102"),
        ("place{strategy=mirrored(0)}", "G0402"),
        ("place{layout=mirrored(2)}", "G0990"),
        ("cse{", "G0990"),
    ],
)
def test_what_is_no_option_is_an_error_of_the_user(text: str, code: str) -> None:
    with pytest.raises(GraphcError) as caught:
        parse_passes(text)
    assert caught.value.code == code
