"""The collector of garbage stands still while a step is compiled."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from itertools import count

import pytest

from graphc.support import gc_pause
from graphc.support.gc_pause import collector_paused


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """What pytest froze is not frozen meanwhile."""
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    yield
    if frozen:
        gc.freeze()


class Ring:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.ring = self


def test_it_is_off_inside_and_afterwards_as_it_was() -> None:
    with collector_paused():
        assert not gc.isenabled()
        with collector_paused():
            pass
        assert not gc.isenabled()  # the inner pause does not end the outer one
    assert gc.isenabled()
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
    with pytest.raises(KeyError), collector_paused():
        raise KeyError
    assert gc.isenabled()


def found_by_the_youngest(ended: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a collection of young objects finds the garbage of a pause."""
    monkeypatch.setattr(gc_pause, "_ENDED", count(ended))
    with collector_paused():
        ring = weakref.ref(Ring())
    gc.collect(0)
    found = ring() is None
    gc.collect()
    assert ring() is None  # a full one finds it in any case
    return found


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="generations are others there")
def test_only_what_the_first_pauses_made_counts_as_old(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not found_by_the_youngest(gc_pause.FIRST - 1, monkeypatch)
    assert found_by_the_youngest(gc_pause.FIRST, monkeypatch)


def test_what_the_user_froze_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc_pause, "_ENDED", count())
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with collector_paused():
            pass
        assert frozen > 0 and gc.get_freeze_count() > frozen // 2
    finally:
        gc.unfreeze()


COMPILES = """
import gc
walks = []
gc.callbacks.append(lambda phase, info: walks.append(info) if phase == "stop" else None)
import numpy as np, graphc
before = len(walks)
w = {"w": np.ones((4, 3), np.float32)}
step = graphc.compile(
    lambda p, b: np.mean((b["x"] @ p["w"]) ** 2), w, {"x": np.ones((8, 4), np.float32)},
    optimizer=graphc.optim.sgd(0.1),
)
step.step({"x": np.ones((8, 4), np.float32)})
print(len(walks) - before, gc.isenabled(), gc.get_freeze_count())
"""


def test_the_first_step_of_a_process_is_walked_a_few_times_at_most() -> None:
    done = subprocess.run([sys.executable, "-c", COMPILES], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    walks, on, frozen = done.stdout.split()
    assert int(walks) <= 5 and (on, frozen) == ("True", "0")
