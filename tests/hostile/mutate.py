"""Changes a plan's JSON as somebody would who knows its structure and mends the checksum."""

from __future__ import annotations

import hashlib
import json
import random
from collections import defaultdict
from typing import Any, TypeAlias

Json: TypeAlias = Any
Place: TypeAlias = tuple[Json, Any]  # a list or dict of the body, and the index or key in it
Kind: TypeAlias = tuple[str, ...]  # what stands at a place: the class, the field, an element

INTS = (
    0, 1, -1, 2, 3, 5, 7, 8, 12, 63, 64, 255, 1000, 4096, 10**6, 2**31 - 1, 2**31, -(2**31), 2**32,
    2**40, 2**53, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, -(10**30), 10**400,
)  # fmt: skip
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-300, 1e308, 0.5, {"float": "nan"}, {"float": "inf"})
TEXTS = (
    "", "x", "w1", "data", "turn", "leaf", "batch", "sum", "tree", "accumulate", "add_n", "train",
    "init", "f32", "f64", "bool", "i64", "u8", "bk,kn->bn", "ij,jk->ik", "ab,ab->", "->", "€" * 9,
    "arena", "constant", "variable", "view", "param", "slot", "../../etc/passwd", "%s%n{0}", "\0",
    "npz", "csv", "a+b", "data+leaf", "data+turn", "x" * 100_000, "worker", "server.0", "sync",
)  # fmt: skip
DEEP = "@deep@"  # becomes lists in lists when the text is made
OTHERS: tuple[Json, ...] = (
    None, True, False, 0, 1, -1, 1.5, "", "x", [], {}, [[]], [0], [1, 2], {"x": 1}, {"is": "Range"},
    {"@": "add"}, {"float": "nan"}, {"float": 3}, {"is": None}, {"@": None}, {"is": "Plan"},
)  # fmt: skip


def forged(head: Json) -> str:
    """The text of a plan file with the right checksum of whatever its body is."""
    text = json.dumps(head["body"], sort_keys=True, separators=(",", ":"))
    made = json.dumps(head | {"sha256": hashlib.sha256(text.encode()).hexdigest()})
    return made.replace(f'"{DEEP}"', "[" * 100_000 + "]" * 100_000)


def mutated(text: str, seed: int) -> str:
    """The text of a plan file with one to three changes; the checksum is right again."""
    rng, head = random.Random(seed), json.loads(text)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change(rng, head["body"])
    return forged(head)


def change(rng: random.Random, body: Json) -> None:
    """Change one thing in a body. Kinds of fields, not fields, are drawn evenly."""
    found: dict[Kind, list[Place]] = defaultdict(list)
    collect(body, (), found)
    kind = rng.choice(sorted(found))
    if rng.random() < 0.15:
        _swap(rng, found[kind])
        return
    where, key = rng.choice(found[kind])
    old = where[key]
    if rng.random() < 0.12:
        _restructure(rng, where, key)
    elif rng.random() < 0.35:
        others = [w[k] for w, k in found[kind] if w[k] != old]
        where[key] = _copy(rng.choice(others)) if others else _other(rng, old)
    else:
        where[key] = _other(rng, old)


def _copy(value: Json) -> Json:
    return json.loads(json.dumps(value))


def _swap(rng: random.Random, found: list[Place]) -> None:
    (a, i), (b, j) = rng.choice(found), rng.choice(found)
    a[i], b[j] = _copy(b[j]), _copy(a[i])


def _restructure(rng: random.Random, where: Json, key: Any) -> None:
    """Drop what stands at a place, or put it there twice."""
    if isinstance(where, dict):
        value = where.pop(key)
        if rng.random() < 0.5:
            where[rng.choice(TEXTS)] = value
    elif rng.random() < 0.5:
        del where[key]
    else:
        where.insert(rng.randrange(len(where) + 1), _copy(where[key]))


def _other(rng: random.Random, old: Json) -> Json:
    """Another value, most often of the same type."""
    if rng.random() < 0.12:
        return rng.choice(OTHERS) if rng.random() < 0.9 else nested(rng.choice((50, 300, 0)))
    match old:
        case bool():
            return not old
        case int():
            near = (old + 1, old - 1, old * 2, -old, old // 2, old + 64, old - 4)
            return rng.choice(near if rng.random() < 0.6 else INTS)
        case float():
            return rng.choice((*FLOATS, -old, old * 2))
        case str():
            return rng.choice((*TEXTS, old + "x", old[:-1], old.upper()))
        case list():
            return _list(rng, old)
        case dict():
            return {k: v for k, v in old.items() if rng.random() < 0.8}
        case _:
            return rng.choice(OTHERS)


def _list(rng: random.Random, old: list[Json]) -> Json:
    match rng.randrange(6):
        case 0:
            return old[:-1]
        case 1:
            return [*old, *old]
        case 2:
            return old[::-1]
        case 3:
            return [*old, rng.choice(INTS)]
        case 4:
            return old * 64
        case _:
            return rng.sample(old, len(old))


def nested(depth: int) -> Json:
    """Lists in lists; 0 stands for more than any reader takes."""
    value: Json = [] if depth else DEEP
    for _ in range(depth):
        value = [value]
    return value


def collect(value: Json, kind: Kind, found: dict[Kind, list[Place]]) -> None:
    """Add every place in a JSON value, by what kind of thing stands there."""
    if type(value) is dict:
        name = str(value.get("is") or value.get("@") or "")
        for key, item in value.items():
            inner = (name, key) if name else (*kind[:2], "*")
            found[inner].append((value, key))
            collect(item, inner, found)
    elif type(value) is list:
        inner = (*kind[:2], "[]")
        for i, item in enumerate(value):
            found[inner].append((value, i))
            collect(item, inner, found)
