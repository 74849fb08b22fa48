"""Every crash point of a save, and every error of the disk: the checkpoint before it loads, and
what has the name of a checkpoint is whole."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from runtime.checkpoints.disk import ERRORS, Crash, Disk
from runtime.checkpoints.values import is_of, is_saved, write

from graphc.runtime.checkpoints import folder as folders
from graphc.runtime.checkpoints.series import read_newest, remove_oldest
from graphc.support.errors import GraphcError

Save = Callable[[Path], object]


def save(folder: Path) -> None:
    """The second checkpoint of a training that keeps one."""
    write(folder, 2, 2)
    remove_oldest(folder, "run", 1)


def saved_until(
    folder: Path, at: int | None, event: str | int, do: Save = save
) -> tuple[list[str], Exception | Crash | None]:
    """Save, with something at one call; the calls, and how it ended."""
    write(folder, 1, 1)
    failed: Exception | Crash | None = None
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(patch, at, event)
        try:
            do(folder)
        except (GraphcError, Crash) as error:
            failed = error
    if isinstance(failed, Crash):
        disk.lose()
    return disk.calls, failed


def check(folder: Path) -> int:
    """Fail if a checkpoint is torn, or none is there; the steps of the newest."""
    for name in os.listdir(folder):
        assert name.startswith(".") or is_of(folder / name, int(name.removeprefix("step-")))
    _, found, _ = read_newest(folder)
    steps = int(found.notes["steps"])
    assert is_saved(found, steps)
    return steps


def points(folder: Path) -> list[str]:
    """The calls of a save that nothing disturbs."""
    calls, failed = saved_until(folder, None, "before")
    assert failed is None and check(folder) == 2
    assert os.listdir(folder) == ["step-00000002"]
    return calls


def test_a_machine_may_die_at_any_call_of_a_save(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    calls = points(tmp_path / "whole")
    assert len(calls) > 15 and {"write", "fsync", "rename", "unlink", "mkdir"} <= {*calls}
    newest = set()
    for at in range(len(calls)):
        for event in ("before", "half", "after"):
            folder = tmp_path / f"{at}.{event}"
            folder.mkdir()
            _, failed = saved_until(folder, at, event)
            assert isinstance(failed, Crash)
            newest.add(check(folder))
    assert newest == {1, 2}


@pytest.mark.parametrize("number", ERRORS, ids=errno.errorcode.get)
def test_an_error_of_the_disk_leaves_the_checkpoints_before_and_nothing_else(
    number: int, tmp_path: Path
) -> None:
    (tmp_path / "whole").mkdir()
    calls = points(tmp_path / "whole")
    for at, call in enumerate(calls):
        folder = tmp_path / f"{at}"
        folder.mkdir()
        made, failed = saved_until(folder, at, number)
        steps = check(folder)
        left = [name for name in os.listdir(folder) if name.startswith(".")]
        renamed = "rename" in made[:at] or (call == "rename" and failed is None)
        if failed is not None:
            assert isinstance(failed, GraphcError) and failed.code == "G0509"
            assert os.strerror(number) in failed.message, (at, call, failed.message)
            assert not left and steps == (2 if renamed else 1)
        else:  # what is not needed any more could not be removed: the save itself went well
            assert renamed and steps == 2, (at, call)


def test_the_test_would_see_what_is_not_brought_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: a save that does without fsync."""
    monkeypatch.setattr(folders.os, "fsync", lambda handle: None)
    (tmp_path / "whole").mkdir()
    torn = 0
    for at in range(len(points(tmp_path / "whole"))):
        folder = tmp_path / f"{at}"
        folder.mkdir()

        def without(folder: Path) -> None:
            os.fsync = lambda handle: None  # type: ignore[assignment]
            save(folder)

        saved_until(folder, at, "before", without)
        try:
            check(folder)
        except (GraphcError, AssertionError):
            torn += 1
    assert torn
