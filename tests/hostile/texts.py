"""Damages the text of graphs: characters, words, lines, numbers, brackets."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

WORDS = (
    "0", "1", "-1", "2147483648", "9" * 30, "9" * 5000, "1e999", "-1e-999", "nan", "inf", "none",
    "true", "f32", "i64", "bool", "u8", "bf16", "f32[]", "f32[-1]", "f32[9999999999999,9999999999]",
    "f32[batch=3]", "f32[batch*0=0]", "%x", "%nothing", '%"a b"', "{", "}", "(", ")", "[", "]", "=",
    ":", ",", "<", ">", '"', "#", "\n", "\0", "é", "\\", "param", "state", "slot", "output", "update",
    "minimize", "graph", "mesh", "over time", "over network", "reduce_sum", "einsum", "scan", "cond",
    "broadcast",
    "{over=(0,)}", "{over=(99,)}", "{dim=-1}", "{data:S(0)}", "{data:H(9)}", "{turn:P}", "of", "at",
    "tuple", "sparse<f32[4,2]; 3; i32>", "(f32[2]; i32[])", "adam", "sgd(lr=1)", "over {w}", "order",
    "graphc-ir 1", "graphc-ir 99", "()" * 60, "(" * 90 + ")" * 90, "(" * 5000, '"' + "x" * 9999 + '"',
)  # fmt: skip
TOKEN = re.compile(r'"[^"\n]*"|%?[\w.]+|\S')


def damaged(text: str, seed: int) -> str:
    """The text with one to four damages."""
    rng = random.Random(seed)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        text = rng.choice(DAMAGES)(rng, text)
    return text


def _character(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text) + 1)
    new = rng.choice(
        ("", chr(rng.randrange(32, 127)), chr(rng.randrange(0x3000)), text[at : at + 1] * 2)
    )
    return text[:at] + new + text[at + 1 :]


def _word(rng: random.Random, text: str) -> str:
    """A word becomes another one, of this text or of the list."""
    found = list(TOKEN.finditer(text))
    if not found:
        return rng.choice(WORDS)
    at = rng.choice(found)
    new = rng.choice((rng.choice(WORDS), rng.choice(found)[0], "", f"{at[0]} {at[0]}"))
    return text[: at.start()] + new + text[at.end() :]


def _like_word(rng: random.Random, text: str) -> str:
    """A word becomes another one of its kind: a name, a number, an op."""
    found = list(TOKEN.finditer(text))
    at = rng.choice(found) if found else None
    alike = [m[0] for m in found if at and _kind(m[0]) == _kind(at[0])]
    if at is None or not alike:
        return text
    return text[: at.start()] + rng.choice(alike) + text[at.end() :]


def _kind(word: str) -> str:
    if word[0] in '%"':
        return word[0]
    return "number" if word.lstrip("-")[:1].isdigit() else "word" if word[0].isalnum() else word


def _number(rng: random.Random, text: str) -> str:
    found = list(re.finditer(r"-?\b\d+\b", text))
    if not found:
        return text
    at = rng.choice(found)
    n = int(at[0][:300])
    near = (n + 1, n - 1, -n, 0, n * 2, 2**31, 2**63, 10**18, 10**40)
    return text[: at.start()] + str(rng.choice(near)) + text[at.end() :]


def _lines(rng: random.Random, text: str) -> str:
    """Lines are dropped, doubled, moved, cut."""
    lines = text.split("\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(5):
        case 0:
            del lines[i]
        case 1:
            lines.insert(j, lines[i])
        case 2:
            lines[i], lines[j] = lines[j], lines[i]
        case 3:
            lines = lines[: i + 1]
        case _:
            lines[i] = lines[i][: rng.randrange(len(lines[i]) + 1)]
    return "\n".join(lines)


DAMAGES: tuple[Callable[[random.Random, str], str], ...] = (
    _character, _word, _word, _like_word, _like_word, _number, _number, _lines, _lines,
)  # fmt: skip
