"""A plan that somebody has changed is refused, or it runs without a crash and without a hang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hostile import corpus
from hostile.attack import WAYS, attack, bad
from hostile.changes import CHANGES, changed, is_refused

from graphc.plan import check
from graphc.plan import plan as plans
from graphc.plan.check import buffers, kernels, starts
from graphc.plan.check import plans as about
from graphc.runtime.backends.reference import BACKEND as REFERENCE
from graphc.runtime.machine.memory_limits import check_memory
from graphc.support.errors import GraphcError

SAMPLE, MANY = 12, 5000
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


@pytest.mark.parametrize(
    ("name", "change", "words"), [(n, c, w) for n, _, c, w in CHANGES], ids=[x[1] for x in CHANGES]
)
def test_a_changed_fieldis_refused(
    name: str, change: Callable[[Json], None], words: str, folder: Path
) -> None:
    with pytest.raises(GraphcError, match=words) as error:
        plans.parse(changed(name, folder, change))
    assert error.value.code == "G0507"


@pytest.mark.parametrize("name", corpus.RUNS)
def test_what_the_compiler_makes_is_read(name: str, folder: Path) -> None:
    plan = corpus.plan(name, folder)
    assert plans.parse(plan.text()) == plan


def test_a_view_that_nothing_makes_needs_no_memory(tmp_path: Path) -> None:
    """Without its writes, most of a step makes what nobody reads: it still runs."""
    corpus.write_data(tmp_path)
    unwritten = changed("rows", tmp_path, lambda b: b["programs"]["train"]["commit"].clear())
    assert attack(unwritten, tmp_path) == dict.fromkeys(WAYS, "ran")


LAWS = {  # and the change that it alone finds
    "mesh_is_possible": "leaves",
    "buffers_hold_what_they_say": "a width",
    "ends_are_there": "a variable's type",
    "made_before_read": "what is read first",
    "kernels_are_typed": "scatter_add.size",
    "collectives_are_typed": "an axis",
}


def test_every_law_is_listed() -> None:
    assert list(LAWS) == [x.__name__ for x in check.LAWS]


@pytest.mark.parametrize("law", LAWS)
def test_each_law_is_needed(law: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a changed plan is taken for a good one, or the reading fails."""
    monkeypatch.setattr(check, "LAWS", tuple(x for x in check.LAWS if x.__name__ != law))
    assert not is_refused(LAWS[law], folder)


def test_first_values_that_no_machine_holds_are_refused_before_they_are_made(folder: Path) -> None:
    plan = corpus.plan("alone", folder)
    init = plan.programs["init"]
    many = replace(init.buffers[-1], shape=(10**6, 10**6))
    huge = replace(plan, programs={**plan.programs, "init": replace(init, buffers=(many,))})
    with pytest.raises(GraphcError, match="program 'init' needs 3.64 TiB"):
        check_memory(huge, REFERENCE, 1 << 40)
    check_memory(plan, REFERENCE, 1 << 20)


FAULTS: dict[str, tuple[str, Any, str, Any]] = {  # the change that shows it, and the edit
    "types are not inferred again": (
        "scatter_add.size", kernels, "_mistyped", lambda op, operands, result: None,
    ),
    "views lie wherever a plan says": (
        "another base", kernels, "_misviewed", lambda x, program, views: None,
    ),
    "ranges need not fit the mesh": (
        "a width", buffers, "_fits", lambda r, length, whole, program: True,
    ),
    "collectives take any buffers": ("all_gather.dim", starts, "_fits", lambda a, b, op: True),
    "data is as it is written": ("a batch of none", about, "_unfit", lambda values, kinds: []),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught(
    fault: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, *edit = FAULTS[fault]
    monkeypatch.setattr(*edit)
    assert not is_refused(shown, folder)
