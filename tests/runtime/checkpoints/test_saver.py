"""Checkpoints while a training goes on: what is written, what is kept, and what goes wrong."""

from __future__ import annotations

import gc
import os
import shutil
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from laws.resume import BATCH, Run, compare, dataset, plan_of, state
from laws.resume import PROGRAM as DRAWN

from graphc.plan.plan import Plan
from graphc.runtime.checkpoints import saver as savers
from graphc.runtime.checkpoints.folder import read_manifest
from graphc.runtime.checkpoints.saver import Checkpoints, Saver
from graphc.runtime.trainer import Trainer
from graphc.support.errors import GraphcError, GraphcWarning

PROGRAM = DRAWN.format(noise="dropout(h, 0.3)", optimizer="adam(0.05)", declared="", written="")


@cache
def plan(strategy: str = "one_device()") -> Plan:
    return plan_of(Run(PROGRAM, strategy, 0, None, 0, 0, False))


def trainer(strategy: str = "one_device()") -> Trainer:
    return Trainer(plan(strategy), "reference")


def train(
    trainer: Trainer, steps: int, where: Checkpoints | Saver | None = None, **more: Any
) -> None:
    trainer.fit(dataset(), BATCH, steps=steps, shuffle_seed=3, checkpoint=where, **more)


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


@pytest.mark.parametrize("strategy", ["mirrored(2)", "diloco(2, every=4)", "zero(2, stage=3)"])
def test_every_checkpoint_resumes_to_the_same_bits(strategy: str, tmp_path: Path) -> None:
    with trainer(strategy) as whole:
        train(whole, 8)
        want = state(whole)
    with trainer(strategy) as saved:
        train(saved, 8, Checkpoints(tmp_path, every=3))
        compare(state(saved), want, "a run with checkpoints")
    assert names(tmp_path) == ["step-00000003", "step-00000006", "step-00000008"]
    for steps in (3, 6, 8):
        with trainer(strategy) as again:
            again.resume(tmp_path / f"step-{steps:08}")
            assert again.steps == steps
            train(again, 8 - steps)
            compare(state(again), want, f"a run resumed after step {steps}")


def test_a_folder_gives_its_newest_checkpoint(tmp_path: Path) -> None:
    with trainer() as first:
        train(first, 5, Checkpoints(tmp_path, every=2))
    with trainer("mirrored(2)") as second:
        second.resume(tmp_path)
        assert second.steps == 5


def test_damaged_checkpoints_are_passed_over_and_named(tmp_path: Path) -> None:
    with trainer() as first:
        train(first, 5, Checkpoints(tmp_path, every=2))
    (tmp_path / "step-00000005" / "manifest.json").unlink()
    tensors = tmp_path / "step-00000004" / "tensors-0.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-1])
    with trainer() as second, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        second.resume(tmp_path)
        assert second.steps == 2
    said = [str(w.message) for w in caught]
    assert ["G0541" in text for text in said] == [True, True]
    assert "step-00000005 is passed over: can't read variables from" in said[0]
    assert "step-00000004 is passed over" in said[1] and "is damaged: in tensor" in said[1]
    shutil.rmtree(tmp_path / "step-00000002")
    with trainer() as third, pytest.raises(GraphcError, match="no checkpoint that is whole"):
        third.resume(tmp_path)
    with trainer() as third, pytest.raises(GraphcError, match="has no checkpoints"):
        (tmp_path / "empty").mkdir()
        third.resume(tmp_path / "empty")


def test_a_checkpoint_of_another_model_names_what_does_not_fit(tmp_path: Path) -> None:
    text = PROGRAM.replace("w2", "w3")
    with Trainer(plan_of(Run(text, "one_device()", 0, None, 0, 0, False)), "reference") as other:
        train(other, 1, Checkpoints(tmp_path))
    with trainer() as mine, pytest.raises(GraphcError, match="no value for w2") as error:
        mine.resume(tmp_path)
    assert error.value.code == "G0510"
    assert str(tmp_path / "step-00000001") in error.value.message


# -- what is kept ----------------------------------------------------------------------------------


def test_the_last_ones_are_kept_and_nothing_that_others_wrote_goes(tmp_path: Path) -> None:
    with trainer() as other:
        train(other, 2, Checkpoints(tmp_path, every=1))
    (tmp_path / "notes").write_text("mine")
    (tmp_path / ".step-00000007.0123456789ab.1").mkdir()
    with trainer() as mine, Saver(mine, Checkpoints(tmp_path, every=2, keep=2)) as saver:
        train(mine, 2, saver)
        saver.last()
        (tmp_path / "step-00000002.2" / "remark").write_text("a user's file")
        train(mine, 7, saver)
    assert names(tmp_path) == [
        ".step-00000007.0123456789ab.1", "notes", "step-00000001", "step-00000002",
        "step-00000002.2", "step-00000008", "step-00000009",
    ]  # fmt: skip


def test_a_training_that_goes_on_keeps_as_many_as_one_and_a_branch_is_another(
    tmp_path: Path,
) -> None:
    where = Checkpoints(tmp_path, every=2, keep=2)
    with trainer() as first:
        train(first, 4, where)
    with trainer() as second:
        second.resume(tmp_path)
        train(second, 4, where)
    assert names(tmp_path) == ["step-00000006", "step-00000008"]
    with trainer() as branch:
        branch.resume(tmp_path / "step-00000006")
        train(branch, 6, where)
    assert names(tmp_path) == ["step-00000006", "step-00000008", "step-00000010", "step-00000012"]
    with trainer() as third:
        third.resume(tmp_path)
        assert third.steps == 12
    numbers = [read_manifest(tmp_path / name).number for name in names(tmp_path)]
    assert numbers == sorted({*numbers})


def test_what_a_killed_run_left_half_written_goes_when_it_is_resumed(tmp_path: Path) -> None:
    where = Checkpoints(tmp_path, every=2)
    with trainer() as first:
        train(first, 2, where)
    run = read_manifest(tmp_path / "step-00000002").run
    others = [".step-00000004.0123456789ab.0123456789ab.1", f".step-00000004.{run}", ".step-x"]
    for name in (f".step-00000004.{run}.0123456789ab.2", f".step-00000001.2.{run}.12ab", *others):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tensors-0.safetensors").write_text("half")
    with trainer() as new:  # another training
        train(new, 1, Checkpoints(tmp_path / "elsewhere"))
    with trainer() as second:
        second.resume(tmp_path)
        train(second, 2, where)
    kept = ["elsewhere", "step-00000002", "step-00000004"]
    assert names(tmp_path) == sorted([*others, *kept])


def test_the_newest_is_the_one_that_was_written_last(tmp_path: Path) -> None:
    for steps in (3, 2):
        with trainer() as one:
            train(one, steps, Checkpoints(tmp_path))
    with trainer() as again:
        again.resume(tmp_path)
        assert again.steps == 2


def test_a_run_that_has_nothing_to_do_writes_nothing_again(tmp_path: Path) -> None:
    with trainer() as first:
        train(first, 3, Checkpoints(tmp_path))
    with trainer() as second:
        second.resume(tmp_path)
        train(second, 0, Checkpoints(tmp_path))
    assert names(tmp_path) == ["step-00000003"]


# -- beside the training ---------------------------------------------------------------------------


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A disk that brings nothing to an end until the event is set."""
    goes_on, sync = threading.Event(), os.fsync

    def wait(handle: int) -> None:
        assert threading.current_thread() is not threading.main_thread()
        assert goes_on.wait(60)
        sync(handle)

    monkeypatch.setattr(os, "fsync", wait)
    yield goes_on
    goes_on.set()


def test_the_training_goes_on_while_a_checkpoint_is_written(
    slow_disk: threading.Event, tmp_path: Path
) -> None:
    def on_step(number: int, _: Any) -> None:
        assert not [name for name in names(tmp_path) if not name.startswith(".")]
        if number == 5:
            slow_disk.set()

    with trainer() as one:
        train(one, 5, Checkpoints(tmp_path, every=3), on_step=on_step)
        want = state(one)
    assert names(tmp_path) == ["step-00000003", "step-00000005"]
    with trainer() as again:  # the values are those of step 3, though steps went on meanwhile
        again.resume(tmp_path / "step-00000003")
        train(again, 2)
        compare(state(again), want, "a run resumed after step 3")


def test_a_checkpoint_that_is_due_waits_for_the_one_before_and_that_is_said(
    slow_disk: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(savers, "PATIENCE", 0.01)
    timer = threading.Timer(0.3, slow_disk.set)
    timer.start()
    with trainer() as one, pytest.warns(GraphcWarning, match="takes longer than 1 steps") as caught:
        train(one, 4, Checkpoints(tmp_path, every=1))
    assert len(caught) == 1 and "note[G0544]" in str(caught[0].message)
    assert len(names(tmp_path)) == 4


# -- what goes wrong -------------------------------------------------------------------------------


def full_disk(monkeypatch: pytest.MonkeyPatch, is_full: Callable[[], bool]) -> None:
    write = os.write

    def written(handle: int, data: Any) -> int:
        if is_full():
            raise OSError(28, os.strerror(28))
        return write(handle, data)

    monkeypatch.setattr(os, "write", written)


def test_a_full_disk_is_warned_of_at_once_and_an_error_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with trainer() as one, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        full_disk(monkeypatch, lambda: one.steps >= 4)
        seen = []

        def on_step(number: int, _: Any) -> None:
            settled()(number, _)
            seen.append(len(caught))

        with pytest.raises(GraphcError, match="step-00000008: No space left") as error:
            train(one, 8, Checkpoints(tmp_path, every=2), on_step=on_step)
        assert error.value.code == "G0509"
        assert one.steps == 8 and one.variables()
    assert seen == [0, 0, 0, 0, 1, 1, 2, 2]  # at the step after the one of the checkpoint
    assert "warning[G0542]: no checkpoint of step 4: can't write" in str(caught[0].message)
    assert names(tmp_path) == ["step-00000002"]


def test_a_disk_that_has_room_again_is_no_error_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with trainer() as one:
        full_disk(monkeypatch, lambda: one.steps in (2, 3))
        with pytest.warns(GraphcWarning, match="no checkpoint of step 2"):
            train(one, 6, Checkpoints(tmp_path, every=2), on_step=settled())
    assert names(tmp_path) == ["step-00000004", "step-00000006"]


def settled() -> Callable[[int, Any], None]:
    """Waits for the thread that writes, so that a test knows of which step it is."""

    def on_step(number: int, _: Any) -> None:
        for thread in threading.enumerate():
            if thread.name == "checkpoint":
                thread.join()

    return on_step


def test_ctrl_c_finishes_the_save_and_writes_where_it_ended(tmp_path: Path) -> None:
    def on_step(number: int, _: Any) -> None:
        if number == 5:
            raise KeyboardInterrupt

    with trainer() as one:
        with pytest.raises(KeyboardInterrupt) as stop:
            train(one, 8, Checkpoints(tmp_path, every=2), on_step=on_step)
        assert stop.value.__notes__ == [f"- wrote {tmp_path / 'step-00000005'}"]
        want = state(one)
    with trainer() as again:
        again.resume(tmp_path)
        compare(state(again), want, "a run that Ctrl-C ended")


def test_an_error_of_the_training_finishes_the_save_and_writes_no_more(tmp_path: Path) -> None:
    def on_step(number: int, _: Any) -> None:
        if number == 5:
            raise ZeroDivisionError

    with trainer() as one, pytest.raises(ZeroDivisionError):
        train(one, 8, Checkpoints(tmp_path, every=2), on_step=on_step)
    assert names(tmp_path) == ["step-00000002", "step-00000004"]


@pytest.mark.parametrize("name", ["file", "file/more", "link"])
def test_a_folder_that_can_not_be_one_is_told_before_the_first_step(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to("file")
    with trainer() as one, pytest.raises(GraphcError, match="can't write") as error:
        train(one, 2, Checkpoints(tmp_path / name))
    assert (error.value.code, one.steps) == ("G0509", 0)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("numbers", [{"every": 0}, {"keep": 0}, {"every": 1.5}, {"keep": True}])
def test_numbers_below_one_are_refused(numbers: dict[str, Any]) -> None:
    with pytest.raises(GraphcError, match="it is a number from 1") as error:
        Checkpoints("x", **numbers)
    assert error.value.code == "G0543"


@pytest.mark.filterwarnings("ignore::graphc.support.errors.GraphcWarning")  # G0477: few steps
def test_an_asynchronous_training_is_saved_while_its_workers_run(tmp_path: Path) -> None:
    strategy = "parameter_server(2, 2, staleness=1)"
    with trainer(strategy) as one:
        train(one, 8, Checkpoints(tmp_path, every=2))
        want = state(one)
    folders = sorted(tmp_path.glob("step-*"))
    steps = [int(folder.name.removeprefix("step-")) for folder in folders]
    assert steps == [2, 4, 6, 8]
    for number, folder in zip(steps, folders, strict=True):
        with trainer(strategy) as again:
            again.resume(folder)
            assert again.steps == again.variables()["step"] == number
            if number == 8:
                compare(state(again), want, "an asynchronous run")


def test_a_numpy_step_is_saved_by_fit_and_in_a_loop_of_ones_own(tmp_path: Path) -> None:
    import numpy as np

    import graphc

    batch = {"x": np.ones((4, 3)), "y": np.ones(4)}

    def compiled() -> Any:
        return graphc.compile(
            lambda p, b: np.mean((b["x"] @ p["w"] - b["y"]) ** 2), {"w": np.zeros(3)}, batch,
            optimizer=graphc.optim.adam(0.1), backend="reference",
        )  # fmt: skip

    where = graphc.Checkpoints(tmp_path, every=2)
    with compiled() as one:
        one.fit([batch] * 3, checkpoint=where)
        with one.saver(where) as saver:
            for _ in range(2):
                one.step(batch)
                saver.after_step()
        want = one.params_sha256()
    with compiled() as again:
        again.load(tmp_path)
        assert (again.steps, again.params_sha256()) == (5, want)
    steps = [int(name[5:13]) for name in names(tmp_path)]
    assert steps == [2, 3, 4, 5]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no list of open files")
@pytest.mark.filterwarnings("ignore:note.G0544")  # as on a busy disk
def test_saves_and_resumes_leave_no_file_open_and_no_thread_behind(tmp_path: Path) -> None:
    def held() -> tuple[int, int]:
        gc.collect()  # what tests before this one have left
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    with trainer() as one:
        before = held()
        train(one, 30, Checkpoints(tmp_path, every=1, keep=2))
        for _ in range(10):
            one.resume(tmp_path)
        after = held()
        assert after[0] <= before[0] and after[1] <= before[1]
    assert names(tmp_path) == ["step-00000029", "step-00000030"]
