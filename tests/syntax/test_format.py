"""The formatter: its laws over many programs, and its layout by example."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from graphc.support.errors import GraphcError
from graphc.syntax.format import format_source
from graphc.syntax.parse import parse_source, parse_with_source

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.gc"))

PROGRAM = """\
# what
import 'a.gc' as nn; const N=1_000
fn dense(x,w,b=none)=x@w+b # affine
fn gate(x, y) { # of a cell

   # scaled
   z = x*-y ; return z if training else (x,)


}
step digits(x:f32[batch,64],y:i32[batch],) {
  param w:f32[64,4*N]=he_normal(){decay=false}
  state enc.m[0]:f32=0.0
  a,b=split(nn.dense(x[:,1:-3],w)[...,none],2)
  for i,v in enumerate([a,b]) { if training and not i==1 { h=dropout(v,.5) } else if N>3 { h=v } else {h=v**2**-v}}
  enc.m[0]<-0.9*enc.m[0]+(1-0.9)*mean(h)
  # the loss
  minimize mean(h) with clip_by_global_norm(1.0)|adam(lr=1e-3) over {w,"k.*",
     enc}
  report accuracy=mean(argmax(h,axis=-1)==y)
}
data train=npz('a "b".npz',batch=256,shuffle(seed=0))
train for 60 epochs
strategy default=mirrored(4)*tensor_split(2,{"w*":1,"b":-1})
fn long(aaaaaaaaaaaaaaaaaaaaaa, bbbbbbbbbbbbbbbbbbbbbbbb, cccccccccccccccccccccc, ddddddddddddd=(1,)) = mean(aaaaaaaaaaaaaaaaaaaaaa + bbbbbbbbbbbbbbbbbbbbbbbb * f(cccccccccccccccccccccc, (ddddddddddddd,), [1, 2]))
"""


def check_laws(text: str) -> str:
    """The formatted text, which is stable and keeps the program and its comments."""
    formatted = format_source(text)
    assert format_source(formatted) == formatted
    before, after = parse_source(text), parse_source(formatted)
    assert after == before
    assert sorted(c.text for c in after.comments) == sorted(c.text for c in before.comments)
    return formatted


def rebroken(text: str, rng: random.Random) -> str:
    """`text` with other blanks, with lines broken and comments put wherever that is allowed."""
    _, source = parse_with_source(text, "t.gc")
    parts: list[str] = []
    depth = 0
    chance = rng.choice([0.02, 0.1, 0.3, 0.6])
    for token in source.tokens:
        if token.type == "SEP":
            parts.append(rng.choice(["\n", "\n\n\n", " # beside\n", "\n# above\n", ";", "\n \t\n"]))
            continue
        parts += [rng.choice([" ", "  ", "\t"]), str(token)]
        depth += (token.type in ("LPAR", "LSQB")) - (token.type in ("RPAR", "RSQB"))
        if (depth and rng.random() < chance) or (token == "{" and rng.random() < 0.3):
            parts.append(rng.choice(["\n", " # c\n", "\n\n # d\n", "# e\n # f\n", "\n\n"]))
    return "".join(parts)


# -- laws ------------------------------------------------------------------------------------------


def test_the_program_keeps_its_meaning_and_its_comments() -> None:
    check_laws(PROGRAM)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_of_the_project_are_formatted(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert check_laws(text) == text


@pytest.mark.parametrize("seed", range(10))
def test_any_line_breaks_and_comments_are_kept_in_meaning(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(6):
        check_laws(rebroken(PROGRAM, rng))


@pytest.mark.slow
def test_any_line_breaks_and_comments_are_kept_in_meaning_for_long() -> None:
    rng = random.Random(0)
    for _ in range(2_000):
        check_laws(rebroken(PROGRAM, rng))


def test_line_breaks_of_the_source_do_not_matter() -> None:
    one = "const a = f(x, [1, 2], y=3)\n"
    assert format_source("const a = f(\n\n x, [\n1,\n2], y\n=3,\n)") == one
    assert format_source(one) == one


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(GraphcError, match=r"G0101.*expected an expression"):
        format_source("const a = \n")


@pytest.mark.parametrize(
    "text",
    [
        "const a = " + "f(" * 200 + "1" + ")" * 200,
        "const a = " + "f(1, # c\n" * 200 + "1" + ")" * 200,
        "const a = f(" + "1, " * 4_000 + ")",
        "const a = " + " + ".join(["f(bbbbbbbbbbbb)"] * 1_000),
        "step s() {" + "if a { } else " * 1_000 + "{ } }",
    ],
    ids=["calls", "comments", "arguments", "sum", "else"],
)
def test_deep_and_long_programs_are_formatted_in_time(text: str) -> None:
    check_laws(text)


# -- layout ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("const a=1+2*-3", "const a = 1 + 2 * -3"),
        ("const a=- b ** - c", "const a = -b ** -c"),
        ("const a = ( a,b )@[ 1,2, ]", "const a = (a, b) @ [1, 2]"),
        ("const a = (a , )", "const a = (a,)"),
        ("const a = f( a ,b = 2, )( c ) [ 0 ] . d", "const a = f(a, b=2)(c)[0].d"),
        ("const a = x[ 1 : , : : 2,... ,none ]", "const a = x[1:, ::2, ..., none]"),
        ("const a = {  }", "const a = {}"),
        ("const a = { 'k' : - 1 , }", 'const a = {"k": -1}'),
        ("const a = not( a )or b", "const a = not (a) or b"),
        ("const a = 1 if(b)else[2]", "const a = 1 if (b) else [2]"),
        (r"""const a = ['it\'s', 'a "b"', "c\td"]""", r"""const a = ["it's", "a \"b\"", "c\td"]"""),
        ("import  'a.gc'  as  b", 'import "a.gc" as b'),
        ("fn f ( a,b = 1 ) = a", "fn f(a, b=1) = a"),
        ("train  for 1_000   steps", "train for 1_000 steps"),
        ("strategy s=a(1)*b", "strategy s = a(1) * b"),
        ("#no blank", "#no blank"),
    ],
)
def test_spaces(text: str, expected: str) -> None:
    assert check_laws(text) == expected + "\n"


def test_blocks_are_indented_a_statement_a_line() -> None:
    assert check_laws("step s(x:f32){if a{b=1;c<-2}else if d{}else{report e=f}}") == (
        "step s(x: f32) {\n"
        "    if a {\n"
        "        b = 1\n"
        "        c <- 2\n"
        "    } else if d {\n"
        "    } else {\n"
        "        report e = f\n"
        "    }\n"
        "}\n"
    )


def test_declarations_and_assignments_that_follow_each_other_are_aligned() -> None:
    text = (
        "step s(x: f32) {\n"
        "param w:f32[64,128]=he_normal()\n"
        "param bias:f32[128]=zeros(){decay=false}\n"
        "state m:f32=0.0\n"
        "h=relu(x)\n"
        "logits=h@w\n"
        "\n"
        "loss=mean(h)\n"
        "m<-loss\n"
        "}\n"
    )
    assert check_laws(text) == (
        "step s(x: f32) {\n"
        "    param w:    f32[64, 128] = he_normal()\n"
        "    param bias: f32[128]     = zeros() { decay=false }\n"
        "    state m:    f32          = 0.0\n"
        "    h      = relu(x)\n"
        "    logits = h @ w\n"
        "\n"
        "    loss = mean(h)\n"
        "    m <- loss\n"
        "}\n"
    )


def test_widths_that_differ_much_are_not_aligned() -> None:
    long = "a_name_of_more_than_twenty_six_letters"
    assert check_laws(f"const a = 1\nconst {long} = 2\n") == f"const a = 1\nconst {long} = 2\n"


def test_what_would_become_too_long_is_not_aligned() -> None:
    wide, narrow = ", ".join(["abcdefgh"] * 8), ", ".join(["abcdefgh"] * 6)
    text = f"const a = f({wide})\nconst longer_name_here = f({narrow})\n"
    assert check_laws(text) == text


def test_comments_beside_code_are_aligned() -> None:
    text = "const a = 1 # one\nconst bcd = 22# two\n\nconst e = 3     # three\n"
    assert check_laws(text) == (
        "const a   = 1   # one\nconst bcd = 22  # two\n\nconst e = 3  # three\n"
    )


def test_one_blank_line_is_kept_and_none_at_the_edges_of_a_block() -> None:
    text = "\n\nconst a = 1\n\n\n\n# b\n\nstep s() {\n\n\n  c = 1\n\n\n  d = 2\n\n}\n\n\n"
    assert check_laws(text) == ("const a = 1\n\n# b\n\nstep s() {\n    c = 1\n\n    d = 2\n}\n")


def test_long_lines_are_opened_at_their_widest_bracket() -> None:
    text = f"const a = f(x) + mean({', '.join(['abcdefghij'] * 8)})\n"
    assert check_laws(text) == (
        "const a = f(x) + mean(\n"
        f"    {', '.join(['abcdefghij'] * 8)}\n"
        ")\n"
    )  # fmt: skip


def test_longer_ones_take_a_line_for_each_item() -> None:
    items = ["abcdefghij"] * 9
    assert check_laws(f"const a = mean({', '.join(items)})\n") == (
        "const a = mean(\n" + "".join(f"    {item},\n" for item in items) + ")\n"
    )


def test_long_operands_inside_brackets_stand_below_each_other() -> None:
    name = "abcdefghijklmnopqrstuvwxyz"
    assert check_laws(f"const a = ({name} * {name} + {name} @ {name} - f({name}))\n") == (
        f"const a = (\n    {name} * {name}\n    + {name} @ {name}\n    - f({name})\n)\n"
    )


def test_comments_inside_brackets_stay_with_their_items() -> None:
    text = (
        "strategy s = a * tensor_split(2, { # the cut\n"
        "  # of weights\n"
        '  "w*": 1, # by columns\n'
        '  "b": f(1, # one\n'
        '     2), "c": 3 # last\n'
        "  # end\n"
        "})\n"
    )
    assert check_laws(text) == (
        "strategy s = a * tensor_split(\n"
        "    2,\n"
        "    {  # the cut\n"
        "        # of weights\n"
        '        "w*": 1,  # by columns\n'
        '        "b": f(\n'
        "            1,  # one\n"
        "            2,\n"
        "        ),\n"
        '        "c": 3,  # last\n'
        "        # end\n"
        "    },\n"
        ")\n"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("const a = f( # none\n)", "const a = f(  # none\n)"),
        ("const a = [b # first\n, # second\n c]",
         "const a = [\n    b,  # first\n    # second\n    c,\n]"),
        ("const a = (b + # why\n c)", "const a = (\n    # why\n    b + c\n)"),
        ("step s() { # why\n}", "step s() {  # why\n}"),
        ("step s() {\n# why\n}", "step s() {\n    # why\n}"),
        ("step s() { } # why", "step s() {\n}  # why"),
        (";# why", "# why"),
    ],
)  # fmt: skip
def test_comments_in_odd_places(text: str, expected: str) -> None:
    assert check_laws(text) == expected + "\n"
