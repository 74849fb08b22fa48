"""Steps that fail on some devices and not on others: nobody waits, and nothing is lost."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from graphc_numpy import NumpyBackend
from graphc_numpy.native.threads.pool import Pool

import graphc
from graphc.runtime.asynchronous.server import Server
from graphc.runtime.data.stream import MicrobatchStream
from graphc.runtime.transports.local import LocalSession, _Worker
from graphc.support.errors import GraphcError

LAST_NET = 3000  # seconds: a test takes one
BACKENDS = ["numpy", NumpyBackend(native=False), "reference"]
BOTH = "mirrored(2) * accumulate(4)"


def ends(work: Callable[[], Any]) -> Any:
    """What work returns or raises; a failure where it does not end."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append((work(), None))
        except BaseException as error:
            found.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LAST_NET)
    assert found, "it waits for ever"
    result, error = found[0]
    if error is not None:
        raise error
    return result


def batch(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.normal(size=(8, 3)).astype(np.float32),
        "y": rng.normal(size=8).astype(np.float32),
    }


def made(strategy: str = BOTH, backend: Any = "numpy") -> graphc.StepTrainer:
    def loss(p: Any, b: Any) -> Any:
        return np.mean(np.square(b["x"] @ p["w"] - b["y"]))

    params = {"w": np.ones(3, np.float32)}
    return graphc.compile(
        loss, params, batch(), optimizer=graphc.optim.adam(0.1), strategy=strategy, backend=backend
    )


def microbatches(seed: int = 0, fails_at: int = -1) -> Iterator[dict[str, Any]]:
    for k in range(4):
        if k == fails_at:
            raise OSError("the disk is gone")
        yield {name: a[2 * k : 2 * k + 2] for name, a in batch(seed).items()}


# -- where one rank fails -------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
@pytest.mark.parametrize("fails_at", range(4))
def test_a_stream_that_fails_leaves_a_trainer_that_goes_on(backend: Any, fails_at: int) -> None:
    def work() -> Any:
        with made(backend=backend) as trainer, made(backend=backend) as other:
            with pytest.raises(OSError, match="the disk is gone"):
                trainer.step(microbatches(0, fails_at))
            for each in (trainer, other):
                each.step(microbatches(1))
                each.step(batch(2))
            assert trainer.steps == other.steps == 2
            return trainer.params_sha256(), other.params_sha256()

    found, wanted = ends(work)
    assert found == wanted


@pytest.mark.parametrize("others", [1, 2])
def test_a_stream_that_failed_on_one_device_has_not_ended_for_the_others(others: int) -> None:
    with made() as trainer:
        program = trainer.trainer.plan.programs["train"]
        stream = MicrobatchStream(program, microbatches(0, fails_at=1))
        stream._pull_to(0)
        for _ in range(1 + others):
            with pytest.raises(OSError, match="the disk is gone"):
                stream._pull_to(3)


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_making_a_program_ready_fails_on_all_devices_or_none(
    backend: Any, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work() -> Any:
        with made("mirrored(3)", backend) as trainer, made("mirrored(3)", backend) as other:
            device = trainer.trainer.engine._devices[rank]  # type: ignore[union-attr]
            kind, old = type(device), type(device).prepare

            def prepare(self: Any, program: str) -> None:
                old(self, program)
                if self is device:
                    raise MemoryError("no more")

            with monkeypatch.context() as patch, pytest.raises(MemoryError):
                patch.setattr(kind, "prepare", prepare)
                trainer.step(batch())
            for each in (trainer, other):
                each.step(batch(1))
                each.step(batch(2))
            return trainer.params_sha256(), other.params_sha256()

    found, wanted = ends(work)
    assert found == wanted


def test_a_worker_whose_job_was_not_given_comes_when_the_run_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old, given = _Worker.give, list[int]()

    def give(self: _Worker, job: Any) -> None:
        given.append(self.comm.rank)
        if len(given) == 2:
            raise KeyboardInterrupt
        old(self, job)

    def work() -> list[int]:
        with LocalSession(4) as session:
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(_Worker, "give", give)
                session.run(lambda comm: comm.rank)
            return session.run(lambda comm: comm.rank)

    assert ends(work) == [0, 1, 2, 3]


def test_a_load_that_is_interrupted_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with made("mirrored(2)", "reference") as trainer:
        engine = trainer.trainer.engine
        values = trainer.variables()
        with monkeypatch.context() as patch, pytest.raises(MemoryError):
            kind = type(engine._devices[0])  # type: ignore[union-attr]
            patch.setattr(kind, "set", lambda self, name, value: _raise(MemoryError()))
            engine.load_variables(values)
        assert not engine.valid
        engine.load_variables(values)
        assert engine.valid
        trainer.step(batch())


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("strategy", ["local_sgd(2, 2)", "diloco(2, 2)"])
def test_ctrl_c_in_a_step_of_replicas_that_meet_changes_no_bit(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: LocalSession, fn: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return old(self, fn)

    old = LocalSession.run
    with made(strategy) as trainer, made(strategy) as other:
        trainer.trainer.fast_path = lambda batch: None
        for k in range(6):
            other.step(batch(k))
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(LocalSession, "run", interrupted)
                trainer.step(batch(k))
            if trainer.steps == k:  # it came in the meeting of the step before
                trainer.step(batch(k))
        trainer.trainer.meet()
        assert trainer.steps == other.steps == 6
        found, wanted = trainer.variables(), other.variables()
        assert all(np.array_equal(found[n], a) for n, a in wanted.items())


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("strategy", ["local_sgd(2, 2)", "diloco(2, 2)"])
def test_ctrl_c_on_the_fast_path_of_replicas_that_meet_changes_no_bit(
    strategy: str, behind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Pool, function: int, frame: int) -> None:
        if behind:
            old(self, function, frame)
        signal.raise_signal(signal.SIGINT)
        if not behind:
            old(self, function, frame)

    old = Pool.run
    with made(strategy) as trainer, made(strategy) as other:
        assert trainer.step(batch(0)) == other.step(batch(0))
        for k in range(1, 6):
            other.step(batch(k))
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(Pool, "run", interrupted)
                trainer.step(batch(k))
            if trainer.steps == k:  # it came before the step, or in the meeting of the one before
                trainer.step(batch(k))
        trainer.trainer.meet()
        assert trainer.steps == other.steps == 6
        found, wanted = trainer.variables(), other.variables()
        assert all(np.array_equal(found[n], a) for n, a in wanted.items())


# -- forks ----------------------------------------------------------------------------------------

FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")


def in_child(work: Callable[[], str]) -> str:
    """What work returns in a fork of this process."""
    end, begin = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        child = os.fork()
    if not child:
        signal.alarm(LAST_NET)
        text = "nothing"
        try:
            text = work()
        except GraphcError as error:
            text = f"{error.code} {error.help}"
        except BaseException as error:
            text = repr(error)
        finally:
            os.write(begin, text.encode())
            os._exit(0)
    os.close(begin)
    with os.fdopen(end) as file:
        found = file.read()
    os.waitpid(child, 0)
    return found


@FORKS
@pytest.mark.parametrize(
    ("strategy", "backend"),
    [("one_device()", "numpy"), (BOTH, "numpy"), ("parameter_server(2, 1, staleness=2)", "numpy"),
     ("diloco(2, 2)", BACKENDS[1]), ("mirrored(2)", "reference")],
    ids=str,
)  # fmt: skip
def test_a_trainer_used_in_a_forked_child_says_what_to_do(strategy: str, backend: Any) -> None:
    uses: list[Callable[[graphc.StepTrainer], Any]] = [
        lambda t: t.step(batch()), lambda t: t.variables(), lambda t: t.evaluate([batch()]),
        lambda t: t.fit([batch()]), lambda t: t.trainer.load(values),
    ]  # fmt: skip
    with made(strategy, backend) as trainer, made(strategy, backend) as other:
        values = trainer.variables()
        for each in (trainer, other):
            each.step(batch())
            each.step(batch(1))
        for use in uses:
            said = in_child(lambda use=use: str(use(trainer)))  # type: ignore[misc]
            assert said.startswith("G0564 make a new trainer here"), said
        assert in_child(lambda: str(trainer.close())) == "None"
        assert in_child(lambda: "it does not touch it") == "it does not touch it"
        for each in (trainer, other):
            each.step(batch(2))
        assert trainer.params_sha256() == other.params_sha256()


def _anew() -> str:
    with made() as trainer:
        trainer.step(batch())
        trainer.step(batch(1))
        return trainer.params_sha256()


@FORKS
def test_a_forked_child_may_make_a_trainer_of_its_own() -> None:
    assert in_child(_anew) == _anew()


def _double(x: int) -> int:
    return 2 * x


@FORKS
@pytest.mark.skipif(sys.platform == "darwin", reason="forks beside threads are unsafe there")
def test_processes_that_load_data_while_a_step_waits_for_them_do_no_harm() -> None:
    def fed() -> Iterator[dict[str, Any]]:
        for part in microbatches(1):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                with multiprocessing.get_context("fork").Pool(1) as pool:
                    assert pool.map(_double, [1, 2]) == [2, 4]
            yield part

    with made() as trainer, made() as other:
        trainer.step(batch())
        other.step(batch())
        trainer.step(fed())
        other.step(microbatches(1))
        assert trainer.params_sha256() == other.params_sha256()


# -- servers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["_pull", "_push", "_apply"])
def test_a_server_that_dies_anywhere_leaves_a_trainer_that_says_so(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, count = getattr(Server, kind), list[int]()

    def dies(self: Server, *given: Any) -> Any:
        count.append(1)
        if len(count) > 4:
            raise MemoryError("no more")
        return old(self, *given)

    def work() -> None:
        with made("parameter_server(2, 2, staleness=2)") as trainer:
            values = trainer.variables()
            with monkeypatch.context() as patch, pytest.raises(GraphcError) as caught:
                patch.setattr(Server, kind, dies)
                trainer.fit([batch(k) for k in range(20)])
            assert caught.value.code == "G0524"
            assert "no more" in caught.value.message
            assert not trainer.trainer.valid
            for use in (trainer.variables, lambda: trainer.fit([batch()])):
                with pytest.raises(GraphcError) as refused:
                    use()
                assert refused.value.code == "G0505"
            trainer.trainer.load(values)
            trainer.fit([batch(k) for k in range(20)])
            assert trainer.trainer.valid

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", graphc.GraphcWarning)
        ends(work)
