"""A fork waits while another thread is in a block in which there must be none."""

from __future__ import annotations

import os
import sys
from threading import Event, Lock, Thread

import pytest

from graphc.support import no_fork as module
from graphc.support.no_fork import no_fork

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="nothing is forked there"),
    pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning"),
]


def forked(lock: Lock) -> int:
    """The exit status of a child, which is 0 if it gets the lock."""
    child = os.fork()
    if child == 0:
        os._exit(0 if lock.acquire(timeout=1) else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize(("waits", "status"), [(True, 0), (False, 1)])
def test_a_lock_that_is_taken_in_a_block_is_free_in_a_child(
    monkeypatch: pytest.MonkeyPatch, waits: bool, status: int
) -> None:
    lock, begun, ending = Lock(), Event(), Event()

    def compile_something() -> None:
        with no_fork(), no_fork(), lock:
            begun.set()
            ending.wait(0.2)

    if not waits:
        monkeypatch.setattr(module, "PATIENCE", 0.01)
    thread = Thread(target=compile_something)
    thread.start()
    begun.wait()
    assert forked(lock) == status
    ending.set()
    thread.join()


def test_a_thread_may_fork_in_its_own_block_and_the_child_may_have_blocks() -> None:
    with no_fork():
        child = os.fork()
        if child == 0:
            with no_fork():
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    assert not module._GATE.inside
