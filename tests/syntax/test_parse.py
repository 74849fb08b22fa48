"""Text to syntax tree: what programs mean, where their parts stand, what is refused and how."""

from __future__ import annotations

import random
import re
import threading
from pathlib import Path

import pytest

from graphc.support.errors import GraphcError
from graphc.syntax import tree as s
from graphc.syntax.parse import parse_file, parse_source, parse_strategy, parser
from graphc.syntax.source_text import COMMENT, MAX_BYTES, MAX_NESTING, STRING
from graphc.syntax.tree_builder import Build

EXAMPLE = """\
# A classifier.
import "layers.gc" as nn
const N = 1_000

fn dense(x, w, b=none) = x @ w + b  # affine
fn gate(x, y) {
    z = x * -y
    return z if training else x
}

step digits(x: f32[batch, 64], y: i32[batch]) {
    param w: f32[64, 4 * N] = he_normal() { decay=false }
    state enc.m[0]: f32     = 0.0

    a, b = split(nn.dense(x[:, 1:3], w)[..., none], 2)
    for i, v in enumerate([a, b]) {
        param k[i]: f32[N] = zeros()
        if training and not i == 1 {
            h = dropout(v, 0.5)
        } else if N > 3 {
            h = v
        } else {
            h = v ** 2 ** -v
        }
    }
    enc.m[0] <- 0.9 * enc.m[0] + 0.1 * mean(h)
    minimize mean(h) with clip_by_global_norm(1.0) | adam(lr=1e-3) over {w, "k.*"}
    report accuracy = mean(argmax(h, axis=-1) == y)
}

data train = npz("digits.npz", batch=256, shuffle(seed=0))
train for 60 epochs
strategy default = mirrored(4) * tensor_split(2, {"w*": 1})
"""


def expression(text: str) -> s.Expr:
    """The tree of an expression, parsed as a constant."""
    match parse_source(f"const a = {text}").items:
        case (s.ConstStatement(value=value),):
            return value
    raise AssertionError(text)


def statement(text: str) -> s.Statement:
    """The tree of a statement of a step."""
    match parse_source(f"step t(x: f32) {{\n{text}\n}}").items:
        case (s.StepStatement(body=(only,)),):
            return only
    raise AssertionError(text)


def refused(text: str | bytes) -> GraphcError:
    """The error that `text` gives, which has a place."""
    with pytest.raises(GraphcError) as caught:
        parse_source(text, "t.gc")
    assert caught.value.span is not None
    return caught.value


# -- the grammar and its methods -------------------------------------------------------------------


def rules_with_a_method() -> set[str]:
    """The rules that build a node, by the name of their method."""
    names = set()
    for rule in parser().rules:
        passes_through = rule.options.expand1 and not rule.alias and len(rule.expansion) == 1
        name = rule.alias or rule.origin.name
        if not passes_through and not name.startswith("_"):
            names.add(str(name))
    return names


def test_every_rule_has_a_method_and_every_method_a_rule() -> None:
    methods = {name for name in vars(Build) if not name.startswith("_")}
    assert rules_with_a_method() == methods


def test_the_look_over_knows_strings_and_comments_as_the_grammar_does() -> None:
    for name, pattern in (("STRING", STRING), ("COMMENT", COMMENT)):
        assert parser().get_terminal(name).pattern.value == pattern.replace(r"\n", "\n")


# -- expressions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("1 + 2 - 3", "OperatorChain(Int(1), [Link('+', Int(2)), Link('-', Int(3))])"),
        ("a + b * c", "OperatorChain(Name('a'), [Link('+', OperatorChain(Name('b'), [Link('*', Name('c'))]))])"),
        ("(a + b) + c", "OperatorChain(OperatorChain(Name('a'), [Link('+', Name('b'))]), [Link('+', Name('c'))])"),
        ("-a ** 2", "Unary('-', Power(Name('a'), Int(2)))"),
        ("a ** b ** c", "Power(Name('a'), Power(Name('b'), Name('c')))"),
        ("2 ** -1", "Power(Int(2), Unary('-', Int(1)))"),
        ("not a == b", "Unary('not', OperatorChain(Name('a'), [Link('==', Name('b'))]))"),
        ("a or b and c",
         "OperatorChain(Name('a'), [Link('or', OperatorChain(Name('b'), [Link('and', Name('c'))]))])"),
        ("a if c else b", "Conditional(Name('a'), Name('c'), Name('b'))"),
        ("f(x)(y).z[0]", "Index(Attribute(Call(Call(Name('f'), [Argument(None, Name('x'))]), "
                         "[Argument(None, Name('y'))]), 'z'), [Int(0)])"),
        ("f(a, b=1)", "Call(Name('f'), [Argument(None, Name('a')), Argument('b', Int(1))])"),
        ("x[:, 1:, ::2, ...]", "Index(Name('x'), [SliceExpr(None, None, None), "
                               "SliceExpr(Int(1), None, None), SliceExpr(None, None, Int(2)), Dots()])"),
        ("()", "Tuple([])"),
        ("(a,)", "Tuple([Name('a')])"),
        ("(a)", "Name('a')"),
        ("[a, b,]", "List([Name('a'), Name('b')])"),
        ('{"a": 1}', "Map([Entry(Str('a'), Int(1))])"),
        ("[true, false, none]", "List([Bool(True), Bool(False), Null()])"),
        ("[1_000, .5, 1., 1e-3, inf]",
         "List([Int(1000), Float(0.5), Float(1.0), Float(0.001), Float(inf)])"),
        (r"""['it\'s', "a\n\"b\\"]""", """List([Str("it's"), Str('a\\n"b\\\\')])"""),
    ],
)  # fmt: skip
def test_expressions_group_as_the_table_says(text: str, tree: str) -> None:
    assert repr(expression(text)) == tree


def test_names_may_begin_like_reserved_words() -> None:
    for name in ("input", "format", "nothing", "iffy", "android", "inform", "steps", "with_"):
        assert expression(name) == expression(f"({name})")
        assert repr(expression(name)) == f"Name('{name}')"


@pytest.mark.parametrize("word", ["data", "state", "step", "strategy", "train", "over", "as"])
def test_words_that_begin_statements_are_names_elsewhere(word: str) -> None:
    tree = statement(f"{word} = f({word}, {word}={word}[0])")
    assert isinstance(tree, s.Assign)
    assert tree.targets == (expression(word),)


def test_equality_is_of_meaning_not_of_spelling() -> None:
    assert expression("1_000 + f(\n x)") == expression("1000+f(x,)")
    assert hash(expression("a")) == hash(expression("(a)"))
    assert expression("nan") == expression("nan")


@pytest.mark.parametrize(("a", "b"), [("1", "1.0"), ("1", "true"), ("f(a)", "f(b)"), ("[]", "()")])
def test_different_values_are_different_trees(a: str, b: str) -> None:
    assert expression(a) != expression(b)


# -- statements ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a, b = b, a", "Assign([Name('a'), Name('b')], Tuple([Name('b'), Name('a')]))"),
        ("w[i].k = 1", "Assign([Attribute(Index(Name('w'), [Name('i')]), 'k')], Int(1))"),
        ("m <- -m", "Update(Name('m'), Unary('-', Name('m')))"),
        ("param w[0]: f32[2] = zeros() { decay=false }",
         "VariableStatement('param', Index(Name('w'), [Int(0)]), TypeExpr('f32', [Int(2)]), "
         "Call(Name('zeros'), []), [Argument('decay', Bool(False))])"),
        ("state n: i64 = 0", "VariableStatement('state', Name('n'), TypeExpr('i64', []), Int(0), [])"),
        ("minimize l with sgd(1) over {a.b, \"c\"}",
         "Minimize(Name('l'), [Call(Name('sgd'), [Argument(None, Int(1))])], "
         "[Attribute(Name('a'), 'b'), Str('c')], [])"),
        ("minimize l with a | b", "Minimize(Name('l'), [Name('a'), Name('b')], None, [])"),
        ("minimize l with a order tree reduction 'mean'",
         "Minimize(Name('l'), [Name('a')], None, [Argument('order', Str('tree')), "
         "Argument('reduction', Str('mean'))])"),
        ("report r = 1", "Report(Name('r'), Int(1))"),
        ("for i, j in xs { }", "For([Name('i'), Name('j')], Name('xs'), [])"),
        ("if a { } else if b { } else { c = 1 }",
         "If([Branch(Name('a'), []), Branch(Name('b'), [])], [Assign([Name('c')], Int(1))])"),
    ],
)  # fmt: skip
def test_statements_of_a_step(text: str, tree: str) -> None:
    assert repr(statement(text)) == tree


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ('import "a.gc"', "Import(Str('a.gc'), None)"),
        ('import "a.gc" as b', "Import(Str('a.gc'), Name('b'))"),
        ("fn f() = 1", "Function(Name('f'), [], [Return(Int(1))])"),
        ("fn f(a, b=2,) { return a, b }",
         "Function(Name('f'), [ParameterDeclaration(Name('a'), None), ParameterDeclaration(Name('b'), Int(2))], "
         "[Return(Tuple([Name('a'), Name('b')]))])"),
        ("train for 3 steps", "Train(Int(3), 'steps')"),
        ("train for 1 epoch", "Train(Int(1), 'epochs')"),
        ("strategy s = one_device", "StrategyStatement(Name('s'), StrategyExpr([Name('one_device')]))"),
        ('data d = npz("x", batch=2, shuffle(seed=0))',
         "DataStatement(Name('d'), Call(Name('npz'), [Argument(None, Str('x')), Argument('batch', Int(2)), "
         "Argument(None, Call(Name('shuffle'), [Argument('seed', Int(0))]))]))"),
    ],
)  # fmt: skip
def test_statements_of_a_file(text: str, tree: str) -> None:
    assert repr(parse_source(text).items) == f"({tree},)"


def test_lines_end_statements_but_not_inside_brackets() -> None:
    one = parse_source("step s(x: f32) { a = f(x, [1, 2]); minimize a with o(1) over {w, v} }")
    many = parse_source(
        "step s(\n  x: f32\n) {\n\n  a = f(x,  # why\n  [1,\n\n 2]\n)\n"
        "  minimize a with o(1) over {\n    w,\n    # both\n    v,\n  }\n}\n"
    )
    assert one == many


@pytest.mark.parametrize(
    "text", ["", "\n\n", ";;\n;", "# only a comment", "\ufeff# with a mark\r\n"]
)
def test_a_file_may_be_empty(text: str) -> None:
    assert parse_source(text).items == ()


def test_line_ends_and_tabs_do_not_matter() -> None:
    plain = parse_source(EXAMPLE)
    assert parse_source(EXAMPLE.replace("\n", "\r\n")) == plain
    assert parse_source(EXAMPLE.replace("    ", "\t")) == plain
    assert parse_source(EXAMPLE.encode()) == plain


def test_comments_are_kept_with_their_places() -> None:
    first, second = parse_source(EXAMPLE, "t.gc").comments
    assert (first.text, first.trailing, str(first.span)) == ("# A classifier.", False, "t.gc:1:1")
    assert (second.text, second.trailing, str(second.span)) == ("# affine", True, "t.gc:5:37")


def test_strategies_are_products_from_left_to_right() -> None:
    assert repr(parse_strategy(" (a * b(2)) * c(k=3) ")) == (
        "StrategyExpr([Name('a'), Call(Name('b'), [Argument(None, Int(2))]), "
        "Call(Name('c'), [Argument('k', Int(3))])])"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected an expression, found the end of the file"),
        ("mirrored(4", "`(` is never closed"),
        ("mirrored(4) accumulate(2)", "found `accumulate`"),
        ("mirrored(4) + accumulate(2)", "a strategy is a product of calls"),
        ("4", "a strategy is a product of calls"),
        ("zero(n=1, 2)", "a positional argument follows a named one"),
    ],
)
def test_strategies_that_are_none_are_refused(text: str, message: str) -> None:
    with pytest.raises(GraphcError, match=re.escape(message)):
        parse_strategy(text)


# -- places ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "covered"),
    [
        (s.OperatorChain, "f(a, b) + 2 * (c)"),
        (s.Call, "f(a, b)"),
        (s.Index, "x[1:, 0]"),
        (s.SliceExpr, "1:"),
        (s.Attribute, "nn.dense"),
        (s.Unary, "-y"),
        (s.Conditional, "p if q else r"),
        (s.Map, '{"k": 1}'),
        (s.Entry, '"k": 1'),
        (s.TypeExpr, "f32[3]"),
        (s.InputStatement, "z: f32[3]"),
        (s.Report, 'report r = {"k": 1}'),
        (s.StepStatement, "step t"),
        (s.If, "if q"),
    ],
)
def test_spans_cover_exactly_what_was_read(kind: type[s.SyntaxNode], covered: str) -> None:
    text = (
        "step t(z: f32[3]) {\n"
        "\tu = f(a, b) + 2 * (c)  # note\n"
        "\tv = x[1:, 0]; w = nn.dense\n"
        "\ta = -y\n"
        "\tb = p if q else r\n"
        '\treport r = {"k": 1}\n'
        "\tif q { }\n"
        "}\n"
    )
    node = next(n for n in s.walk(parse_source(text)) if type(n) is kind)
    line = text.split("\n")[node.span.line - 1]
    assert line[node.span.col - 1 :][: node.span.length] == covered


def test_a_span_over_several_lines_ends_with_the_code_of_its_first() -> None:
    tree = parse_source("const a = f(x,  # first\n  y)\n", "t.gc")
    value = tree.items[0].value  # type: ignore[union-attr]
    assert (value.span.line, value.span.col, value.span.length) == (1, 11, len("f(x,"))


def test_parentheses_belong_to_the_span_of_what_they_hold() -> None:
    chain = expression("(a + b) * c")
    assert isinstance(chain, s.OperatorChain)
    assert (chain.span.col, chain.first.span.col, chain.first.span.length) == (11, 11, 7)


# -- what is refused -------------------------------------------------------------------------------


def test_an_error_shows_its_line_and_a_caret() -> None:
    assert refused("step s(x: f32) {\n\tparm w: f32 = 0.0\n}").render() == (
        "error[G0101]: no statement begins with `parm`\n"
        "  --> t.gc:2:2\n"
        "   |\n"
        " 2 |  parm w: f32 = 0.0\n"
        "   |  ^^^^\n"
        "   = help: did you mean 'param'?"
    )


def test_the_block_that_was_left_open_is_found_by_its_indentation() -> None:
    error = refused(
        "step s() {\n    for i in a {\n        b = i\n    c = b\n}\ntrain for 1 epoch\n"
    )
    assert error.message == "`{` is never closed"
    assert error.span is not None and error.span.line == 2
    ((place, word),) = error.labels
    assert place.line == 4
    assert "perhaps it should be closed above this line" in word


@pytest.mark.parametrize("data", [b"const a = '\xff'", b"\x80", EXAMPLE.encode("utf-16")])
def test_what_is_no_utf8_is_refused(data: bytes) -> None:
    error = refused(data)
    assert error.code == "G0106"
    assert "not UTF-8" in error.message


@pytest.mark.parametrize("char", ["\0", "\x0c", "\x85", "\u200b", "\u2028", "\ud800", "\r"])
def test_invisible_characters_are_refused_even_in_comments(char: str) -> None:
    error = refused(f"const a = 1\n# x{char}y\n")
    assert error.code == "G0103"
    assert error.span is not None and (error.span.line, error.span.col) == (2, 4)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(GraphcError, match=r"cannot read .*no\.gc: No such file"):
        parse_file(tmp_path / "no.gc")


def test_a_large_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "large.gc"
    path.write_bytes(b"#" * (MAX_BYTES + 5))
    with pytest.raises(GraphcError, match="the limit is 16,777,216"):
        parse_file(path)


# -- hostile sizes ---------------------------------------------------------------------------------

MANY = 100_000


@pytest.mark.parametrize(
    "text",
    [
        "(" * MANY + "1" + ")" * MANY,
        "[" * MANY,
        "-" * MANY + "1",
        "not " * 5_000 + "a",
        "2 ** " * 5_000 + "2",
        "a if b else " * 5_000 + "c",
        "f" + "()" * 5_000,
        "f" + "[0]" * 5_000,
        "f" + ".g" * 5_000,
    ],
    ids=lambda text: text[:12],
)
def test_deep_nesting_is_refused(text: str) -> None:
    error = refused(f"const a = {text}")
    assert (error.code, error.message) == ("G0104", "nested deeper than 200 levels")


@pytest.mark.parametrize(
    ("before", "after"), [("f(", ")"), ("[", "]"), ("(", ")"), ('{"a": ', "}")]
)
def test_nesting_up_to_the_limit_parses_compares_and_prints(before: str, after: str) -> None:
    text = f"const a = {before * MAX_NESTING}1{after * MAX_NESTING}"
    tree = parse_source(text)
    assert tree == parse_source(text)
    assert hash(tree) == hash(parse_source(text))
    assert repr(tree).count("Int(1)") == 1


def test_blocks_nest_up_to_the_limit_and_no_further() -> None:
    deep = "step s() {" + "if a {" * (MAX_NESTING - 1) + "}" * MAX_NESTING
    assert sum(isinstance(n, s.If) for n in s.walk(parse_source(deep))) == MAX_NESTING - 1
    assert refused("step s() {" + "if a {" * MAX_NESTING).code == "G0104"


def test_long_chains_are_flat() -> None:
    tree = expression("+".join(["a"] * 20_000))
    assert isinstance(tree, s.OperatorChain)
    assert len(tree.links) == 19_999


def test_long_else_if_chains_are_flat() -> None:
    tree = statement("if a { } else " * 2_000 + "{ }")
    assert isinstance(tree, s.If)
    assert len(tree.branches) == 2_000


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("const a = " + "x + " * 2_600_000 + "x", "G0105"),
        ("const a = " + "1" * 10_000_000, "G0103"),
        ("const a = " + "1_" * 5_000_000, "G0103"),
        (" " * 10_000_000 + "?", "G0103"),
        ('const a = "' + "x" * 10_000_000, "G0103"),
        ("#" * (MAX_BYTES + 1), "G0105"),
    ],
    ids=["sum", "integer", "underscores", "blanks", "string", "file"],
)
def test_a_line_of_ten_megabytes_is_refused_fast(text: str, code: str) -> None:
    error = refused(text)
    assert error.code == code
    assert len(error.render()) < 1_000


@pytest.mark.parametrize(
    "text",
    [
        'const a = "' + r"\n" * 1_000_000 + '"',
        "# " + "x " * 2_000_000,
        "const a" + "a" * 10_000_000 + " = 1",
    ],
    ids=["string", "comment", "name"],
)
def test_a_long_string_comment_or_name_is_no_problem(text: str) -> None:
    assert len(parse_source(text).items) <= 1


# -- mutated programs ------------------------------------------------------------------------------

SCRAPS = [
    *"()[]{}.,:;=<>-+*/%@|\"'#\n\t\\!&a1_", "if ", "else ", "in ", "for ", "fn ", "step ", "param ",
    "return ", "<-", "**", "...", "1e5", '"x"', "state ", "train for ", "not ", "none", "\u202e",
    "é", "inf", " over ", " with ", "import ", "strategy ", "data ", "const ",
]  # fmt: skip


def mutated(text: str, rng: random.Random) -> str:
    """`text` with a few cuts, insertions and exchanges."""
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        pieces = re.findall(r"\s+|\w+|[^\w\s]", text) or [""]
        i, j = rng.randrange(len(pieces)), rng.randrange(len(pieces))
        match rng.randrange(5):
            case 0:
                del pieces[i : i + rng.choice([1, 1, 2, 10])]
            case 1:
                pieces.insert(i, rng.choice(SCRAPS))
            case 2:
                pieces.insert(i, pieces[j])
            case 3:
                pieces[i], pieces[j] = pieces[j], pieces[i]
            case _:
                pieces[i] = rng.choice(SCRAPS)
        text = "".join(pieces)
    return text


@pytest.mark.parametrize("seed", range(10))
def test_mutated_programs_give_a_tree_or_an_error_with_a_place(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(30):
        text = mutated(EXAMPLE, rng)
        try:
            parse_source(text, "t.gc")
        except GraphcError as error:
            assert error.span is not None and 1 <= error.span.line <= text.count("\n") + 1
            assert "^" in error.render()


@pytest.mark.slow
def test_many_mutated_programs_give_a_tree_or_an_error() -> None:
    rng = random.Random(0)
    for _ in range(20_000):
        try:
            parse_source(mutated(EXAMPLE, rng), "t.gc")
        except GraphcError as error:
            assert error.span is not None


def test_threads_parse_at_the_same_time() -> None:
    texts = [EXAMPLE.replace("digits", f"digits{i}") for i in range(4)]
    found: dict[int, s.SourceFile] = {}

    def work(i: int) -> None:
        found[i] = parse_source(texts[i], f"{i}.gc")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, text in enumerate(texts):
        assert found[i] == parse_source(text)
        assert {n.span.file for n in s.walk(found[i])} == {f"{i}.gc"}
