"""Text to graph: text may be laid out freely, and wrong text is an error with its place."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from graphc.ir.graph import Graph
from graphc.support.errors import GraphcError
from graphc.text import parse_ir, print_ir
from graphc.verify import verify


def test_spaces_comments_and_bare_words_are_free() -> None:
    text = """# after partition
    graphc-ir 1 graph g mesh ( data = 2 ) { # a comment
      output y = %y %x:f32[ 2 ]{data:P}
      = input{source_name=x} %y : f32[2] = all_reduce %x {axis=data} }"""
    assert print_ir(parse_ir(text)) == (
        "graphc-ir 1\n\ngraph g mesh(data=2) {\n"
        '  %x : f32[2] {data:P} = input {source_name="x"}\n'
        '  %y : f32[2]          = all_reduce %x {axis="data"}\n\n'
        "  output y = %y\n}\n"
    )


def test_an_axis_says_what_its_devices_reach_each_other_through() -> None:
    text = (
        "graphc-ir 1\n\ngraph g mesh(a=2 over network, b=3 over host, c=4, t=2 over time) {\n\n}\n"
    )
    mesh = parse_ir(text).mesh
    assert [a.link for a in mesh.axes] == ["network", "host", "memory", "memory"]
    assert (
        mesh.link("abc") == "network" and mesh.link("bc") == "host" and mesh.link("t") == "memory"
    )
    assert parse_ir(print_ir(parse_ir(text))).mesh == mesh
    assert parse_ir(text.replace("c=4", "c=4 over memory")).mesh == mesh


HEAD = "graphc-ir 1\ngraph g {\n"

BAD = [
    ("", "G0902", "must begin with 'graphc-ir 1'", "1:1"),
    ("# only a comment\n", "G0902", "must begin with", "2:1"),
    ("graphc-ir 2 graph g {}", "G0902", "this graphc reads version 1", "1:11"),
    ("graphc-ir one", "G0902", "reads version 1", "1:11"),
    ("graphc-ir 1\n", "G0901", "the end of the text is not expected here", "1:12"),
    (HEAD, "G0901", "the end of the text is not expected here", "2:10"),
    (HEAD + "}}", "G0901", "'}' is not expected here", "3:2"),
    (HEAD + "  %a : f32[] = const {value=}", "G0901", "'}' is not expected", "3:29"),
    (HEAD + "  %a : f32[] = const {value=$}", "G0901", "'$' is not expected", "3:29"),
    (HEAD + '  %a : f32[] = const {value="a}\n}', "G0901", "'\"' is not expected", "3:29"),
    (HEAD + "  outptu y = %a }", "G0901", "'=' is not expected", "3:12"),
    (HEAD + "  wobble y : f32[] }", "G0901", "no statement begins with 'wobble'", "3:3"),
    (HEAD + "  %a : f23[] = neg %a }", "G0201", "'f23' is not a dtype", "3:8"),
    (HEAD + "  %a : f32[x] = neg %a }", "G0901", "']' is not expected", "3:13"),
    (HEAD + "  %a : f32[1.5] = neg %a }", "G0905", "integer is needed here, not 1.5", "3:12"),
    (HEAD + "  %a : f32[] {d:Q} = neg %a }", "G0905", "a state is R, S(dim), P", "3:17"),
    (HEAD + "  %a : f32[] {d:S} = neg %a }", "G0905", "a state is R", "3:17"),
    (HEAD + "  %a : f32[] {d:S(x)} = neg %a }", "G0905", "a state is R", "3:17"),
    (HEAD + "  %a : f32[] {d:P(mean)} = neg %a }", "G0905", "a state is R", "3:17"),
    (HEAD + "  %a : f32[] = conts {value=1} }", "G0904", "there is no op 'conts'", "3:16"),
    (HEAD + "  %a : f32[] = const {valu=1} }", "G0904", "const has no attribute 'valu'", "3:23"),
    (HEAD + "  %a : f32[] = const }", "G0905", "const needs the attribute 'value'", "3:16"),
    (HEAD + '  %a : f32[] = const {value="1"} }', "G0905", "value takes bool or int", "3:23"),
    (HEAD + "  %a : f32[] = reduce_sum {over=1} }", "G0905", "over takes a tuple of int", "3:28"),
    (HEAD + "  %a : f32[] = reduce_sum {over=(a,)} }", "G0905", "over takes a tuple", "3:28"),
    (HEAD + "  %a : f32[] = slice {dim=true} }", "G0905", "dim takes int", "3:23"),
    (HEAD + "  %a : f32[] = all_reduce {axis=f32} }", "G0905", "axis takes a string", "3:28"),
    (HEAD + '  %a : f32[] = all_reduce {axis="a", op="mean"} }', "G0905", 'op takes "sum"', "3:38"),
    (HEAD + "  %a : f32[] = const {value=dat(x=1)} }", "G0904", "there is no record 'dat'", "3:29"),
    (HEAD + "  %a : f32[] = const {value=1, value=2} }", "G0903", "'value' is given twice", "3:32"),
    (HEAD + "  %a : f32[] = neg %a %a : f32[] = neg %a }", "G0903", "'a' is defined twice", "3:23"),
    (HEAD + "  param a : f32[] state a : f32[] }", "G0903", "'a' is defined twice", "3:19"),
    (HEAD + '  param "a\\q" : f32[] }', "G0905", "bad string", "3:9"),
    (HEAD + "  param a : f32[] fill none }", "G0905", "'a': fill takes a number", "3:3"),
    (HEAD + "  %a : f32[1.0] = neg %a }", "G0905", "an integer is needed", "3:12"),
    ("graphc-ir 1 graph g mesh(a=2 over sea) {}", "G0905", "over time, or over space: memory, host", "1:35"),
    (HEAD + f"  %a : f32[{'9' * 5000}] = neg %a }}", "G0905", "is too long", "3:12"),
    (HEAD + f"  %a : f32[] = const {{value={'(' * 200}", "G0906", "nest deeper than 100", "3:127"),
    (HEAD + "{" * 100_000, "G0906", "nest deeper than 100", "3:100"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "code", "message", "place"), BAD)
def test_wrong_text_is_an_error_with_its_place(
    text: str, code: str, message: str, place: str
) -> None:
    with pytest.raises(GraphcError) as caught:
        parse_ir(text, "case.gir")
    error = caught.value
    assert (error.code, message in error.message) == (code, True), str(error)
    assert str(error.span) == f"case.gir:{place}"
    line = int(place.split(":")[0])
    assert ("^" in str(error)) == (line <= len(text.splitlines()))


@pytest.mark.parametrize(
    ("text", "help"),
    [
        ("  %a : f32[] = conts {value=1} }", "did you mean 'const'?"),
        ("  %a : f32[] = const {valu=1} }", "did you mean 'value'?"),
        ("  %a : f32[] = neg {q=1} }", "neg takes: none"),
        ("  %a : f23[] = neg %a }", "did you mean 'f32'?"),
        ("  outptu y = %a }", "did you mean 'output'?"),
        ("  param y = %a }", "expected ':'"),
    ],
)
def test_wrong_text_gets_a_hint(text: str, help: str) -> None:
    with pytest.raises(GraphcError) as caught:
        parse_ir(HEAD + text)
    assert caught.value.help == help


def test_a_text_over_the_limit_is_refused() -> None:
    with pytest.raises(GraphcError, match="at most") as caught:
        parse_ir(" " * ((64 << 20) + 1))
    assert caught.value.code == "G0906"


def test_a_line_of_ten_megabytes_is_an_error_or_a_graph() -> None:
    long = "x" * 10_000_000
    with pytest.raises(GraphcError) as caught:
        parse_ir(f"{HEAD} %a : f32[] = const {{value={long}}} }}")
    assert len(str(caught.value)) < 2000
    parse_ir(f'{HEAD} %a : f32[] = input {{source_name="{long}"}} }}')
    with pytest.raises(GraphcError):
        parse_ir(" " * 10_000_000)


def test_every_beginning_of_a_text_is_an_error(random_graph: Callable[[int], Graph]) -> None:
    text = print_ir(random_graph(3), locs=True)
    for end in range(0, len(text) - 3, 41):
        with pytest.raises(GraphcError):
            parse_ir(text[:end])


@pytest.mark.parametrize("seed", range(150))
def test_mutated_text_is_an_error_or_a_graph(
    seed: int, random_graph: Callable[[int], Graph]
) -> None:
    draw = random.Random(seed)
    text = list(print_ir(random_graph(seed % 7), locs=True))
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(text))
        match draw.randrange(3):
            case 0:
                del text[at : at + draw.randint(1, 5)]
            case 1:
                text[at] = draw.choice('(){}[]<>%"=:,;@#-+*.019aRSPVH \n\\\x00θ')
            case _:
                other = draw.randrange(len(text))
                text[at:at] = text[other : other + draw.randint(1, 30)]
    try:
        graph = parse_ir("".join(text))
        verify(graph)
        print_ir(graph)
    except GraphcError as error:
        assert str(error).startswith(f"error[{error.code}]")
