"""Turns a syntax error into words: what stands there, what was expected, what was probably meant."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from lark import Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from graphc.errors import GraphcError, Span, did_you_mean
from graphc.frontend.source import Source

_EXPRESSION = frozenset({
    "NAME", "INT", "FLOAT", "STRING", "TRUE", "FALSE", "NONE", "NOT",
    "LPAR", "LSQB", "LBRACE", "MINUS",
})  # fmt: skip
_STATEMENT = frozenset({
    "IMPORT", "CONST", "FN", "STEP", "DATA", "TRAIN", "STRATEGY",
    "PARAM", "STATE", "FOR", "IF", "MINIMIZE", "REPORT", "RETURN",
})  # fmt: skip
# `if` continues an expression too, and `(`, `[` and `.` continue a name.
_OPERATORS = frozenset({
    "+", "-", "*", "/", "//", "%", "@", "**", "==", "!=", "<", "<=", ">", ">=",
    "AND", "OR", "IF", "(", "[", ".",
})  # fmt: skip
_STATEMENT_WORDS = tuple(sorted(w.lower() for w in _STATEMENT))
_NAMED = {
    "SEP": "the end of the line", "$END": "the end of the file",
    "NAME": "a name", "STRING": "a string in quotes", "INT": "an integer", "FLOAT": "a number",
}  # fmt: skip


class Habit(NamedTuple):
    """A usual mistake: what stands before the offending place on its line, what follows, help."""

    before: str
    after: str
    help: str


_BRACES = "a block is written in braces: `for i in range(4) { ... }`"
_COMMENT = "a comment begins with `#`"
_HABITS = tuple(
    (re.compile(before + r"\Z"), re.compile(after), help)
    for before, after, help in (
        # Other languages' words.
        Habit(r"\s*def\s+", r"", "a function is written `fn name(a, b) = expression`"),
        Habit(r"\s*(func|function|proc)\s+", r"", "a function begins with `fn`"),
        Habit(r".*\blambda\b\s*", r"", "name the function: `fn name(x) = expression`"),
        Habit(r"\s*class\s+", r"", "there are no classes; write `fn` or `step`"),
        Habit(r"\s*while\s+", r"", "loops are static: `for i in range(n) { ... }`"),
        Habit(r"\s*elif\s+", r"", "write `} else if condition {` on the closing brace's line"),
        Habit(r"\s*(let|var|val|auto|set)\s+", r"", "an assignment is written `name = expression`"),
        Habit(r"\s*from\s+", r"", 'a file is imported whole: `import "layers.gc" as layers`'),
        Habit(r"\s*import\s+", r"\w", 'a file is named in quotes: `import "layers.gc"`'),
        Habit(r"\s*(pass|break|continue|raise|with|try|async|await|yield)\b.*", r"", "there is no such statement"),
        Habit(r"\s*train\s+", r"[\w(]", "write `train for 60 epochs`"),
        Habit(r"\s*", r"else\b", "`else` stands on the line of the closing brace: `} else {`"),
        # Blocks.
        Habit(r"\s*fn\b[^)]*", r":", "a function's parameters have no types: shapes are known at each call"),
        Habit(r"\s*(fn|step)\b.*\)\s*", r"->", "what comes out is inferred: leave `->` out"),
        Habit(r"(\s*|.*\}\s*)(for|if|else|step|fn)\b.*", r":\s*(#.*)?$", _BRACES),
        Habit(r"(\s*|.*\}\s*)(for|if|else|step)\b.*", r"\s*$|#", "open the block on this line with `{`"),
        Habit(r"\s*step\s*", r"\(.*|$", "a step has a name: `step NAME(x: f32[batch, 64]) { ... }`"),
        Habit(r"\s*step\b[^)]*[(,]\s*\w+\s*", r"[,)]", "an input has a type: `x: f32[batch, 64]`"),
        Habit(r".*\S", r"\}", "a `}` ends a block; is a `{` missing above?"),
        # Statements.
        Habit(r"\s*(param|state)\s+[\w.\[\]]+\s*", r"=", "give its type: `param w: f32[64, 128] = zeros()`"),
        Habit(r"\s*(param|state)\b.*:.*", r"\s*($|#|\{)", "give its start value: `= zeros()`"),
        Habit(r"\s*minimize\b(?!.*\bwith\b).*", r"", "name the optimizer: `minimize loss with adam(lr=1e-3)`"),
        Habit(r"\s*report\s+\w+\s*", r"", "write `report name = expression`"),
        Habit(r"\s*return\s*", r"\s*($|#|\})", "a function returns a value: `return expression`"),
        # Operators.
        Habit(r".*[-+*/%@]\s*", r"=(?!=)", "there is no `+=` or the like: write `x = x + 1`"),
        Habit(r".*:", r"=", "an assignment is written `=`"),
        Habit(r"(\s*|.*\}\s*else\s+)if\b.*", r"=(?!=)", "`=` assigns; to compare, write `==`"),
        Habit(r".*[=(,].*", r"=(?!=)", "`=` stands once, behind a name; to compare, write `==`"),
        Habit(r".*", r"<-", "`<-` updates a state; for less than a negative number write `a < -b`"),
        Habit(r".*", r"&", "write `and`"),
        Habit(r".*", r"\|", "write `or`; `|` only chains optimizers, after `with`"),
        Habit(r".*", r"!(?!=)", "write `not`"),
        Habit(r".*", r"~", "write `not`"),
        Habit(r".*", r"\^", "a power is written `**`"),
        Habit(r".*", r"is\b", "compare by `==`"),
        Habit(r".*", r"\?", "write `a if condition else b`"),
        Habit(r".*", r"\$|`|\\", "this sign has no meaning outside a string"),
        Habit(r".*", r"->", "there are no arrows but `<-`, which updates a state"),
        # Spelling.
        Habit(r"\s*/?", r"/|\*", _COMMENT),
        Habit(r".*(\"\"|'')", r"[\"']", f"{_COMMENT}; a string ends on its line"),
        Habit(r".*\b[fFrRbBuU]", r"[\"']", "strings have no prefix"),
        Habit(r".*\d", r"[A-Za-z_]", "a name begins with a letter, and a product needs its `*`"),
    )
)  # fmt: skip


def diagnose(error: UnexpectedInput, source: Source, signs: Mapping[str, str]) -> GraphcError:
    """The syntax error as G0101 or G0103. signs: the text of each terminal that has one."""
    match error:
        case UnexpectedToken(token=Token() as token):
            return _unexpected(error, token, source, signs)
        case UnexpectedCharacters(pos_in_stream=int() as offset):
            return _unknown_sign(source, offset)
        case _:
            raise AssertionError(f"a kind of syntax error that Lark did not have: {error!r}")


def _unknown_sign(source: Source, offset: int) -> GraphcError:
    char = source.text[offset]
    span = source.place(offset)
    name = "" if char.isascii() else f" (U+{ord(char):04X} {unicodedata.name(char, 'unnamed')})"
    help = _habit(source, span)
    if char.isalpha():
        help = "names are made of the letters a to z, digits and `_`"
    return GraphcError("G0103", f"unexpected character `{char}`{name}", span=span, help=help)


def _unexpected(
    error: UnexpectedToken, token: Token, source: Source, signs: Mapping[str, str]
) -> GraphcError:
    span = _place(source, token)
    parser = error.interactive_parser
    accepted = parser.accepts() if parser else error.expected
    message = f"expected {_expected(accepted, signs)}, found {_found(token)}"
    help = _habit(source, span) or _unknown_statement(source, span)
    return GraphcError("G0101", message, span=span, help=help)


def _place(source: Source, token: Token) -> Span:
    """The token's own place; behind the last code for the end of a line or of the file."""
    if token.type == "$END":
        last = next((t for t in reversed(source.tokens) if t.type != "SEP"), token)
        return Span(source.file, last.end_line or 1, last.end_column or 1)
    if token == "\n":
        return Span(source.file, token.line or 1, source.end_of_line(token.line or 1))
    return source.cover(token, token)


def _expected(accepted: Iterable[str], signs: Mapping[str, str]) -> str:
    """`a, b or c`, with the many tokens that begin an expression said in one word."""
    left = set(accepted)
    words = []
    if left >= _STATEMENT:
        words.append("a statement")
        left -= _STATEMENT | _EXPRESSION | {"SEP", "$END"}
    elif left >= {"NAME", "INT", "STRING"}:
        words.append("an expression")
        left -= _EXPRESSION
    spelled = {signs.get(name, name) for name in left}
    operator = spelled >= {"+", "*"} or spelled >= {"(", "[", "."}
    if operator:
        spelled -= _OPERATORS
    if "SEP" in spelled:
        spelled -= {"$END", "}"}
    words += sorted(_NAMED.get(sign) or f"`{sign.lower()}`" for sign in spelled)
    words += ["an operator"] if operator else []
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _found(token: Token) -> str:
    match token.type:
        case "SEP" if token == "\n":
            return "the end of the line"
        case "$END":
            return "the end of the file"
        case "STRING":
            return "a string"
        case _:
            text = str(token)
            return f"`{text}`" if len(text) <= 40 else f"`{text[:37]}...`"


def _habit(source: Source, span: Span) -> str | None:
    """The help for a usual mistake, by what stands around `span`. Looks at 200 characters."""
    line = source.lines[span.line - 1]
    start = max(0, span.col - 201)
    before, after = line[start : span.col - 1], line[span.col - 1 : span.col + 199]
    for looks_back, looks_on, help in _HABITS:
        if looks_on.match(after) and looks_back.match(before):
            return help
    return None


def _unknown_statement(source: Source, span: Span) -> str | None:
    """A word at the start of a statement that is followed by another one is a misspelled keyword."""
    before = source.lines[span.line - 1][: span.col - 1]
    word = re.fullmatch(r"\s*([A-Za-z_]{1,40})\s+", before[-80:])
    if word is None:
        return None
    known = f"a statement begins with one of {', '.join(_STATEMENT_WORDS)} or reads `name = ...`"
    return did_you_mean(word.group(1), _STATEMENT_WORDS) or known
