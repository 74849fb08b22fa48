"""Law 4's machinery: programs by seed, and what becomes of each in a process with limits.

A program is a mutation (of tokens, of characters, or a splice) of one that works, or is made from
nothing. Its outcome is a result, an error that keeps the rules, or a defect.
"""

from __future__ import annotations

import random
import re
import resource
import signal
import tempfile
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from graphc.compiler.driver import compile_module
from graphc.frontend.language import evaluate
from graphc.frontend.language.load import module_of_source
from graphc.frontend.language.names import builtin_names
from graphc.ir import builder
from graphc.runtime.trainer import Trainer
from graphc.strategies import parse_strategy
from graphc.support.errors import GraphcError, InternalError, Span, VerifyError, codes

ROOT = Path(__file__).parents[2]
MEMORY = 6 * 2**30  # of address space, of which threads and BLAS reserve much and use little
SECONDS = 20.0  # of CPU time: other work on the machine does not count
STRATEGIES = (
    "mirrored(2)", "mirrored(3)", "accumulate(2)", "mirrored(2) * accumulate(3)",
    "tensor_split(2)", "mirrored(2, reduce=\"tree\")", "mirrored(2) * tensor_split(2)",
)  # fmt: skip

SNIPPETS = [
    """
const n = 3
const widths = [4, n + 1, 2 * n - 1]
fn scaled(x, factor=0.5) = factor * x
fn pick(x, kind="a") {
    for i in range(2) { x = x + i }
    if kind == "a" { return x } else if kind == "b" { return -x } else { return x, x }
}
step s(x: f32[batch, 4], y: i32[batch], t: f64[2 * n]) {
    h = x
    for i, width in enumerate(widths[1:]) {
        param layers[i].w: f32[widths[i], width] = he_normal()
        param layers[i].b: f32[width] = zeros() { decay=false }
        h = h @ layers[i].w + layers[i].b
        if i < 1 and not false { h = relu(h) }
    }
    a, b = (pick(h), scaled(h, factor=2))
    loss = mean(cross_entropy(a + b, y)) + cast(sum(t), f32)
    minimize loss with clip_by_global_norm(1.0) | adamw(cosine_decay(1e-3, steps=10)) over {layers}
    report accuracy = mean(argmax(a, axis=-1) == y)
}
strategy default = mirrored(2) * accumulate(2)
strategy wide = tensor_split(2, {"*w": 1})
train for 3 epochs
""",
    """
step s(x: f32[batch, 6], ids: i32[batch]) {
    param table: f32[9, 6] = normal(0.1)
    state level: f32 = 0.0
    state seen[0]: i64 = 1
    rows = table[ids] + embedding(table, ids)
    left = x[:, :3]; right = x[..., ::2]
    outer = left[:, :, none] * right[:, none, :]
    z = where(rows > 0.5 or rows < -1, rows, 0.1 * rows) ** 2
    level <- 0.9 * level + 0.1 * mean(z)
    seen[0] <- seen[0] + 1
    error = mean(square(z - x)) + 1e-3 * mean(outer) / batch
    minimize error with sgd(0.1, momentum=0.9)
    report last = x[-1]
    report rate = (1 if training else 0) * level
}
""",
    """
step s(x: f32[batch, 4, 4, 2]) {
    param k: f32[3, 3, 2, 3] = glorot_uniform()
    param scale: f32[3] = ones()
    param shift: f32[3] = zeros()
    h = max_pool(relu(batch_norm(conv2d(x, k), scale, shift)))
    h = dropout(flatten(h, keep=1), 0.25)
    a = softmax(layer_norm(h, ones([12]), zeros([12])), axis=-1)
    report y = einsum("bi,bi->b", a, h)
    minimize mean(logsumexp(h, axis=1)) + sum(array([1.0, 2.0])) with rmsprop(0.01)
}
""",
]


@cache
def corpus() -> tuple[str, ...]:
    """Programs to mutate: the examples, the language's own, and the snippets above."""
    examples = [p.read_text("utf-8") for p in sorted((ROOT / "examples").glob("*.gc"))]
    spec = (ROOT / "spec" / "language.md").read_text("utf-8")
    blocks = re.findall(r"```gc *[^\n]*\n(.*?)```", spec, re.DOTALL)
    return (*SNIPPETS * 4, *examples, *(b for b in blocks if "step " in b))


# -- mutations -------------------------------------------------------------------------------------

TOKEN = re.compile(r'\s+|#[^\n]*|"[^"\n]*"|\d[\w.]*|\w+|\*\*|<-|[<>=!]=|//|.', re.DOTALL)
NUMBERS = (
    "0", "1", "2", "3", "-1", "7", "64", "1000000", "9223372036854775807", "2 ** 40", "1e308",
    "1e-400", "0.5", "nan", "inf", "-inf", "1.5",
)  # fmt: skip
WORDS = [
    "param",
    "state",
    "minimize",
    "with",
    "over",
    "report",
    "for",
    "in",
    "if",
    "else",
    "return",
    "fn",
    "step",
    "const",
    "import",
    "as",
    "data",
    "train",
    "epochs",
    "steps",
    "strategy",
    "and",
    "or",
    "not",
    "true",
    "false",
    "none",
    "batch",
    "training",
    "x",
    "y",
    "w",
    "h",
    "i",
    "f32",
    "i32",
    "u8",
    "bool",
    "f64",
    "bf16",
    "mirrored",
    "accumulate",
    "tensor_split",
    "over",
]
SIGNS = [
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "@",
    "**",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "=",
    "<-",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    ".",
    "...",
    "|",
    ";",
    '"',
    "'",
    "#",
    "\\",
    "\n",
    "\t",
    "$",
    "?",
    "é",
    "\x00",
]
STRINGS = ('""', '"a"', '"w*"', '"*"', '"bi,bj->ij"', '"../x.gc"', '"\\n"')


def token(rng: random.Random) -> str:
    pool = rng.choice((NUMBERS, WORDS, SIGNS, STRINGS, builtin_names()))
    return f" {rng.choice(pool)} " if rng.random() < 0.7 else rng.choice(pool)


def mutated_tokens(text: str, rng: random.Random) -> str:
    tokens = TOKEN.findall(text)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        at = rng.randrange(len(tokens))
        while tokens[at].isspace() and rng.random() < 0.9:
            at = rng.randrange(len(tokens))
        match rng.randrange(6):
            case 0:
                del tokens[at]
                tokens = tokens or ["x"]
            case 1:
                tokens.insert(at, token(rng))
            case 2:
                tokens[at] = tokens[rng.randrange(len(tokens))]
            case 3:
                end = min(len(tokens), at + rng.randrange(1, 20))
                tokens[at:end] = tokens[at:end] * 2
            case _:
                tokens[at] = token(rng)
    return "".join(tokens)


OPERATORS = [
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "@",
    "**",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "and",
    "or",
]


def swapped_words(text: str, rng: random.Random) -> str:
    """Names for names, numbers for numbers, operators for operators: mostly it still parses."""
    tokens = TOKEN.findall(text)
    names = sorted({t for t in tokens if re.match(r"[a-zA-Z_]", t)})
    kinds: list[tuple[str, tuple[str, ...] | list[str]]] = [
        (r"[a-zA-Z_]", names), (r"[a-zA-Z_]", builtin_names()), (r"\d", NUMBERS),
        (r"[-+*/%@<>=!]+$", OPERATORS), (r"\"", STRINGS), (r"\d", names),
    ]  # fmt: skip
    for _ in range(rng.choice((1, 1, 2, 4))):
        pattern, pool = rng.choice(kinds)
        places = [i for i, word in enumerate(tokens) if re.match(pattern, word)]
        if places:
            tokens[rng.choice(places)] = rng.choice(pool)
    return "".join(tokens)


def mutated_characters(text: str, rng: random.Random) -> str:
    chars = list(text)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(chars))
        match rng.randrange(4):
            case 0:
                del chars[at : at + rng.choice((1, 1, 1, 40))]
                chars = chars or ["x"]
            case 1:
                chars.insert(at, chr(rng.choice((rng.randrange(32, 127), rng.randrange(0x3000)))))
            case 2:
                chars[at] = chars[rng.randrange(len(chars))]
            case _:
                chars[at] = rng.choice("()[]{}=,:.*0123456789abcxyz\"'\n ")
    return "".join(chars)


def spliced(text: str, rng: random.Random) -> str:
    """Lines of two programs."""
    a, b = text.splitlines(), rng.choice(corpus()).splitlines()
    at, start = rng.randrange(len(a) + 1), rng.randrange(len(b))
    return "\n".join(a[:at] + b[start : start + rng.randrange(1, 6)] + a[at:])


# -- programs from nothing -------------------------------------------------------------------------


UNARY = [
    "relu",
    "exp",
    "tanh",
    "square",
    "sigmoid",
    "softmax",
    "log_softmax",
    "abs",
    "sin",
    "cumsum",
    "sort",
    "gelu",
    "flip",
    "stop_gradient",
]
REDUCE = ["sum", "mean", "max", "min", "prod", "var", "logsumexp"]


class Maker:
    """Writes expressions and statements whose words are right and whose sense is left to chance."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.sanity = rng.choice((0.0, 0.5, 1.0, 1.0))
        self.names = ["x", "t", "ids", "w", "batch", "c"]

    def program(self) -> str:
        body = [self.statement() for _ in range(self.rng.randrange(1, 7))]
        return "\n".join([
            f"const c = {'3' if self.sanity else self.expression(3, static=True)}",
            f"fn f(a, b=2) = {self.rng.choice(('a', 'a + b', 'relu(a)', 'a * b'))}",
            "step s(x: f32[batch, 3], t: f32[2, 3, 4], ids: i32[batch]) {",
            "    param w: f32[3, 3] = ones()",
            *(f"    {line}" for line in body),
            f"    report out = {self.sane(2) if self.sanity else self.expression(3)}",
            self.rng.choice(("", "    minimize mean(x @ w) with sgd(0.1)")),
            "}",
        ])  # fmt: skip

    def statement(self) -> str:
        name = self.rng.choice(("h", "z", "w", "q[0]", "q.a"))
        value = self.expression(self.rng.randrange(1, 5))
        if self.rng.random() < self.sanity:
            return f"{self.rng.choice(('h', 'z', 'x'))} = {self.sane(self.rng.randrange(1, 5))}"
        self.names.append(name)
        rare = (
            f"for i in {self.expression(2, static=True)} {{ {name} = {value} }}",
            f"if {self.expression(2, static=True)} {{ {name} = {value} }} else {{ }}",
            f"state {name}: f32 = {self.expression(1, static=True)}",
            f"param {name}: f32[{self.expression(1, static=True)}] = {self.call(1)}",
            f"a, b = {value}",
            f"{name} <- {value}",
        )
        return f"{name} = {value}" if self.rng.random() < 0.7 else self.rng.choice(rare)

    def expression(self, depth: int, static: bool = False) -> str:
        rng = self.rng
        if depth <= 0 or rng.random() < 0.2:
            return self.leaf(static)
        a = self.expression(depth - 1, static)
        match rng.randrange(9):
            case 0 | 1:
                op = rng.choice(
                    ["+", "-", "*", "/", "//", "%", "@", "**", "==", "<", ">=", "and", "or"]
                )
                return f"({a} {op} {self.expression(depth - 1, static)})"
            case 2:
                return rng.choice((f"(-{a})", f"(not {a})"))
            case 3:
                return f"{a}[{self.subscripts()}]"
            case 4:
                return f"{a}.{rng.choice(('T', 'shape', 'rank', 'dtype', 'a'))}"
            case 5:
                return f"[{a}, {self.expression(depth - 1, static)}]"
            case 6 if static:
                return f"{rng.choice(('range', 'len', 'enumerate', 'zip'))}({a})"
            case _:
                return self.call(depth)

    def sane(self, depth: int) -> str:
        """An expression that is mostly right: about x and w, which broadcast."""
        rng = self.rng
        if depth <= 0:
            return rng.choice(("x", "x", "x", "x", "w[0]", "x @ w", "ids[:, none]", "2.5", "batch"))
        a, b = self.sane(depth - 1), self.sane(rng.randrange(depth))
        return rng.choice((
            f"{rng.choice(UNARY)}({a})", f"({a} {rng.choice('+-*/')} {b})", f"-{a}", f"{a} ** 2",
            f"{rng.choice(REDUCE)}({a}, axis={rng.choice((0, -1, 'none'))}, keepdims=true)",
            f"where({a} > {b}, {a}, {b})", f"maximum({a}, {b})", f"reshape({a}, x.shape)",
            f"concat([{a}, {b}], axis=1)[:, :3]", f"({a})[:, ::-1]", f"transpose(transpose({a}))",
            f"f({a})", f"grad(sum({a} * x), x)", f"embedding(w, argmax({a}, axis=-1))", f"dropout({a}, 0.5)", f"({a}) @ w",
        ))  # fmt: skip

    def subscripts(self) -> str:
        kinds = ("0", "-1", ":", "1:", "::-1", "...", "none", "ids", "99", "1:0", "true", '"a"')
        return ", ".join(self.rng.choice(kinds) for _ in range(self.rng.randrange(1, 4)))

    def call(self, depth: int) -> str:
        rng = self.rng
        name = rng.choice((*builtin_names(), "f"))
        given = [self.argument(depth - 1) for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3, 4)))]
        options = ("axis", "keepdims", "dtype", "shape", "lr", "keep", "n", "key", "steps")
        if rng.random() < 0.3:
            given.append(f"{rng.choice(options)}={self.argument(0)}")
        return f"{name}({', '.join(given)})"

    def argument(self, depth: int) -> str:
        rng = self.rng
        if rng.random() < 0.5:
            return self.expression(depth)
        return rng.choice((
            "x", "t", "w", "ids", "[2, 3]", "[batch, 3]", "(0, 1)", "[x, x]", "[0, -1]", "f32", "1",
            "0", "-1", "2", "none", "true", '"same"', '"bi,ij->bj"', "0.5", "[]", "[[1, 1], [0, 2]]",
        ))  # fmt: skip

    def leaf(self, static: bool) -> str:
        numbers = ("0", "1", "2", "3", "-1", "0.5", "1e9", "2 ** 62", "nan", "inf")
        others = (
            "true",
            "false",
            "none",
            '"a"',
            "f32",
            "[]",
            "[1, 2]",
            '{"a": 1}',
            "training",
            "relu",
        )
        pools = (numbers, others) if static else (self.names, self.names, numbers, others)
        return self.rng.choice(self.rng.choice(pools))


def program(seed: int) -> str:
    """The program of a seed."""
    rng = random.Random(seed)
    if seed % 3 == 0:
        return Maker(rng).program()
    change: Callable[[str, random.Random], str] = rng.choice(
        (swapped_words, swapped_words, mutated_tokens, mutated_characters, spliced)
    )
    return change(rng.choice(corpus()), rng)


# -- outcomes --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What became of a program: 'result', the code of its error, or 'defect' with the reason."""

    seed: int
    kind: str
    text: str = ""
    reason: str = ""


class OutOfTime(BaseException):
    """The program took too long."""


def limit_process() -> None:
    """The limits of a worker process."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    evaluate.MAX_WORK = 50_000
    builder.MAX_NODES = 2_000


def outcome(seed: int) -> Outcome:
    """Compile the program of a seed, sometimes for a strategy too, and sometimes run a step."""
    return outcome_of(program(seed), seed)


def outcome_of(text: str, seed: int) -> Outcome:
    before = signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind = _tried(text, Path(folder) / "fuzz.gc", random.Random(seed))
        return Outcome(seed, kind)
    except (Exception, OutOfTime) as error:
        shown = "".join(traceback.format_exception(error)[-12:])
        return Outcome(seed, "defect", text, shown)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _too_long(*_: object) -> None:
    raise OutOfTime(f"more than {SECONDS} s")


def _tried(text: str, file: Path, rng: random.Random) -> str:
    try:
        module = module_of_source(text, str(file), {"batch": 4})
        plan = compile_module(module, parse_strategy("one_device"))
        if rng.random() < 0.4:
            plan = compile_module(module, parse_strategy(rng.choice(STRATEGIES)))
        if rng.random() < 0.4:
            _step(plan, rng)
    except GraphcError as error:
        _check(error, text, str(file))
        return error.code
    return "result"


def _step(plan: Any, rng: random.Random) -> None:
    with Trainer(plan, rng.choice(("numpy", "reference")), max_bytes=2**28) as trainer:
        types = plan.programs["train"].inputs
        batch = {name: np.ones(t.shape, t.dtype.numpy) for name, t in types.items()}
        trainer.step(batch)
        trainer.evaluate([batch])


# Errors that are no place's: of the strategy, of the machine, of the numbers in the data.
UNPLACED = re.compile(r"G04|G0204|G0209|G05|G07")


def _check(error: GraphcError, text: str, file: str) -> None:
    """Assert what every error keeps: a code that users know, a place in the file, a caret."""
    assert error.code in codes()
    assert not isinstance(error, InternalError | VerifyError), "a defect of graphc"
    assert not error.code.startswith("G09"), "a law of the IR is broken"
    shown = error.render()
    assert len(shown) < 5_000, "an endless message"
    if error.span is None:
        assert UNPLACED.match(error.code), f"no place: {shown}"
        return
    for span in (error.span, *(label for label, _ in error.labels)):
        _check_span(span, text, file)
    assert "^" in shown


def _check_span(span: Span, text: str, file: str) -> None:
    assert span.file == file, f"a place in {span.file}"
    lines = text.split("\n")
    assert 1 <= span.line <= len(lines), f"no line {span.line}"
    assert 1 <= span.col <= len(lines[span.line - 1]) + 1, f"no column {span.col}"


def outcomes(seeds: range) -> list[Outcome]:
    """The outcomes of many, for a worker process."""
    return [outcome(seed) for seed in seeds]


if __name__ == "__main__":
    import sys
    from collections import Counter

    limit_process()
    found: Counter[str] = Counter()
    for made in map(outcome, range(*map(int, sys.argv[1:]))):
        found[made.kind] += 1
        if made.kind == "defect":
            print(f"=== seed {made.seed}\n{made.text}\n--- {made.reason}")
    print(found)
