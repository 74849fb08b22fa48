"""Plans with one change each, of which none may be read."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from hostile import corpus
from hostile.mutate import forged

from graphc.plan import plan as plans
from graphc.support.errors import GraphcError

Json = Any


@cache
def text_of(name: str, folder: Path) -> str:
    """The text of a plan, as the compiler made it."""
    return corpus.plan(name, folder).text()


def changed(name: str, folder: Path, change: Callable[[Json], None]) -> str:
    """The text of a plan whose training program was changed by somebody who mends the checksum."""
    head = json.loads(text_of(name, folder))
    change(head["body"])
    return forged(head)


def program(body: Json) -> Json:
    return body["programs"]["train"]


def kernel(body: Json, op: str) -> Json:
    """The first kernel of an op, or collective, in the training program."""
    made = program(body)
    every = [*made["setup"], *made["body"], *made["commit"]]
    every += [x for loop in every if loop["is"] == "Loop" for x in loop["body"]]
    return next(x for x in every if x.get("op", {}).get("@") == op)


def result(body: Json, op: str) -> Json:
    return program(body)["buffers"][kernel(body, op)["result"]]


def operand(body: Json, op: str, slot: int = 0) -> Json:
    return program(body)["buffers"][kernel(body, op)["operands"][slot]]


def cut(body: Json) -> Json:
    """The first buffer of which a place has a part."""
    return next(b for b in program(body)["buffers"] if b.get("ranges") and "axes" in b["ranges"][0])


CHANGES: list[tuple[str, str, Callable[[Json], Any], str]] = [
    ("moves", "scatter_add.size", lambda b: kernel(b, "scatter_add")["op"].update(size=10**9), "it computes f32"),
    ("moves", "cumsum.dim", lambda b: kernel(b, "cumsum")["op"].update(dim=7), "there is no dim 7"),
    ("moves", "a view's part", lambda b: kernel(b, "slice")["op"].update(stop=10**6), "slice: "),
    ("moves", "another base", lambda b: result(b, "slice").update(base=0), "not in the memory of its operand"),
    ("moves", "a base that is not there", lambda b: result(b, "slice").update(base=10**6), "does not exist"),
    ("moves", "a view of what moves", lambda b: result(b, "cumsum").update(kind="view", base=0), "lie in its base"),
    ("moves", "an operand", lambda b: kernel(b, "concat")["operands"].pop(), "it computes f32"),
    ("rows", "a variable's type", lambda b: program(b)["variable_types"]["w"].update(shape=[2, 8]), "which buffer"),
    ("mirrored", "a width", lambda b: cut(b)["ranges"][0].update(widths=[1, 1]), "not match its ranges"),
    ("rows", "row_sum.size", lambda b: kernel(b, "row_sum")["op"].update(size=-1), "row_sum: "),
    ("mirrored", "a range", lambda b: result(b, "all_reduce")["ranges"].append({"is": "Range", "count": 4}), "is not well-formed"),
    ("mirrored", "an axis", lambda b: kernel(b, "all_reduce")["op"].update(axis="rows"), "can't run over 'rows'"),
    ("mirrored", "a time axis", lambda b: kernel(b, "all_reduce")["op"].update(axis="turn"), "can't run over 'turn'"),
    ("zero", "all_gather.dim", lambda b: kernel(b, "all_gather")["op"].update(dim=5), "other shards than it says"),
    ("store", "a home", lambda b: kernel(b, "pull")["op"].update(coordinate=1), "other shards than it says"),
    ("same", "leaves", lambda b: program(b)["mesh"]["leaves"].update(slots=0), "leaves of the batch"),
    ("alone", "what is read first", lambda b: program(b)["body"].reverse(), "not computed before it"),
    ("alone", "a constant's bytes", lambda b: kernel(b, "const")["op"].update(value=10**400), "does not fit into"),
    ("moves2", "a mask's number", lambda b: kernel(b, "mask")["op"].update(fill=10**400), "does not fit into"),
    ("alone", "a batch of none", lambda b: b["data"]["train"].update(batch=0), "'batch' has an impossible value"),
    ("alone", "a duration", lambda b: b["meta"]["duration"].update(unit="days"), "'duration' has an impossible value"),
    ("alone", "a numerator", lambda b: b["reports"]["loss"].update(numerator="w"), "'loss' has an impossible value"),
    ("alone", "half a quotient", lambda b: b["reports"]["loss"].update(denominator=""), "'loss' has an impossible value"),
    ("alone", "a batch dim", lambda b: b["reports"]["loss"].update(batch=[0]), "'loss' has an impossible value"),
    ("alone", "another report", lambda b: b["reports"].update(acc={"is": "PlannedReport"}), "'acc' has an impossible value"),
    ("alone", "what evaluation does", lambda b: b["programs"].update(evaluate=program(b)), "program 'evaluate' writes variables"),
    ("local", "a period", lambda b: b["meta"].update(every="2"), "'every' has an impossible value"),
    ("free", "the servers", lambda b: b["asynchronous"].update(servers=2), "programs of 2 servers"),
]  # fmt: skip


def is_refused(change: str, folder: Path) -> bool:
    """Whether a plan with the change of that name is refused for the right reason."""
    name, edit, words = next((n, c, w) for n, what, c, w in CHANGES if what == change)
    try:
        plans.parse(changed(name, folder, edit))
    except GraphcError as error:
        return words in error.render()
    except Exception:
        return False
    return False
