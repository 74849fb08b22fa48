"""A plan that somebody has changed is refused, or it runs without a crash and without a hang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile import corpus
from hostile.attack import bad
from hostile.mutate import forged

from graphc.errors import GraphcError
from graphc.runtime import check
from graphc.runtime import plan as plans

SAMPLE, MANY = 24, 5000
HERE = Path(__file__).parent
Json = Any


def attacked(folder: Path, first: int, last: int, kind: str = "plans") -> list[dict[str, Any]]:
    """How the plans of these seeds ended."""
    command = [sys.executable, str(HERE / "attack.py"), kind, str(folder), str(first), str(last)]
    env = os.environ | {"PYTHONPATH": str(HERE.parent), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_mutated_plans_are_refused_or_run(tmp_path: Path) -> None:
    found = attacked(tmp_path, 0, SAMPLE)
    assert len(found) == SAMPLE
    assert not [x for x in found if bad(x)]


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("part", range(10))
def test_thousands_of_mutated_plans_are_refused_or_run(tmp_path: Path, part: int) -> None:
    each = MANY // 10
    assert not [x for x in attacked(tmp_path, part * each, (part + 1) * each) if bad(x)]


# -- one change each -------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("hostile")
    corpus.write_data(made)
    return made


def changed(name: str, folder: Path, change: Callable[[Json], None]) -> str:
    """The text of a plan whose training program was changed by somebody who mends the checksum."""
    head = json.loads(corpus.plan(name, folder).text())
    change(head["body"])
    return forged(head)


def program(body: Json) -> Json:
    return body["programs"]["train"]


def kernel(body: Json, op: str) -> Json:
    """The first kernel of an op, or collective, in the training program."""
    role = program(body)["roles"][0]
    every = [*role.get("setup", []), *role["body"], *role.get("commit", [])]
    every += [x for loop in every if loop["is"] == "Loop" for x in loop["body"]]
    return next(x for x in every if x.get("op", {}).get("@") == op)


def result(body: Json, op: str) -> Json:
    return program(body)["buffers"][kernel(body, op)["result"]]


def operand(body: Json, op: str, slot: int = 0) -> Json:
    return program(body)["buffers"][kernel(body, op)["operands"][slot]]


def swap_offsets(body: Json) -> None:
    """Every value of the arena lies at its start."""
    for b in program(body)["buffers"]:
        b.pop("offset", None) if b.get("kind", "arena") == "arena" else None


CHANGES: list[tuple[str, str, Callable[[Json], Any], str]] = [
    ("moves", "scatter_add.size", lambda b: kernel(b, "scatter_add")["op"].update(size=10**9), "it makes f32"),
    ("moves", "cumsum.dim", lambda b: kernel(b, "cumsum")["op"].update(dim=7), "there is no dim 7"),
    ("moves", "a view's stride", lambda b: result(b, "slice").update(strides=[1, 1]), "does not lie where"),
    ("moves", "a view's offset", lambda b: result(b, "slice").update(offset=0), "does not lie where"),
    ("moves", "an operand", lambda b: kernel(b, "concat")["operands"].pop(), "it makes f32"),
    ("moves", "two values at one place", swap_offsets, "lie on each other"),
    ("rows", "a short arena", lambda b: program(b).update(arena=64), "lies outside the arena"),
    ("rows", "a variable's type", lambda b: program(b)["variable_types"]["w"].update(shape=[2, 8]), "which buffer"),
    ("rows", "row_sum.size", lambda b: kernel(b, "row_sum")["op"].update(size=-1), "row_sum: "),
    ("mirrored", "a range", lambda b: result(b, "all_reduce")["ranges"].append({"is": "Range", "count": 4}), "is not well-formed"),
    ("mirrored", "an axis", lambda b: kernel(b, "all_reduce")["op"].update(axis="rows"), "can't run over 'rows'"),
    ("mirrored", "a time axis", lambda b: kernel(b, "all_reduce")["op"].update(axis="turn"), "can't run over 'turn'"),
    ("zero", "all_gather.dim", lambda b: kernel(b, "all_gather")["op"].update(dim=5), "other parts than it says"),
    ("store", "a home", lambda b: kernel(b, "pull")["op"].update(place=1), "other parts than it says"),
    ("same", "leaves", lambda b: program(b)["mesh"]["leaves"].update(slots=0), "leaves of the batch"),
    ("alone", "what is read first", lambda b: program(b)["roles"][0]["body"].reverse(), "not made before it"),
    ("alone", "a constant's bytes", lambda b: kernel(b, "const")["op"].update(value=10**400), "does not fit into"),
    ("alone", "a batch of none", lambda b: b["data"]["train"].update(batch=0), "'batch' is not what it can be"),
    ("alone", "a duration", lambda b: b["meta"]["duration"].update(unit="days"), "'duration' is not"),
    ("local", "a period", lambda b: b["meta"].update(every="2"), "'every' is not"),
    ("free", "the servers", lambda b: b["asynchronous"].update(servers=2), "programs of 2 servers"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "change", "words"), [(n, c, w) for n, _, c, w in CHANGES], ids=[x[1] for x in CHANGES]
)
def test_a_changed_field_is_refused(
    name: str, change: Callable[[Json], None], words: str, folder: Path
) -> None:
    with pytest.raises(GraphcError, match=words) as error:
        plans.parse(changed(name, folder, change))
    assert error.value.code == "G0507"


@pytest.mark.parametrize("name", corpus.RUNS)
def test_what_the_compiler_makes_is_read(name: str, folder: Path) -> None:
    plan = corpus.plan(name, folder)
    assert plans.parse(plan.text()) == plan


@pytest.mark.parametrize("law", check.LAWS, ids=[x.__name__ for x in check.LAWS])
def test_each_law_is_needed(
    law: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, one of the changed plans is taken for a good one, or the reading fails."""
    monkeypatch.setattr(check, "LAWS", tuple(x for x in check.LAWS if x is not law))
    assert any(not _is_refused(n, c, w, folder) for n, _, c, w in CHANGES)


def _is_refused(name: str, change: Callable[[Json], None], words: str, folder: Path) -> bool:
    try:
        plans.parse(changed(name, folder, change))
    except GraphcError as error:
        return words in error.render()
    except Exception:
        return False
    return False
