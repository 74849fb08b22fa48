"""Forked processes: the threads of devices exist only in the parent.

A forked process has the memory of devices, but not their threads: waiting for one would take
forever. So objects with such threads are notified, in the child, that they can't be used there.
"""

from __future__ import annotations

import os
import sys
from typing import Protocol
from weakref import WeakSet

from graphc.support.errors import GraphcError


class Forked(Protocol):
    """An object that is notified of a fork, in the child; `lost` must not wait for anything."""

    def lost(self) -> None: ...


_KNOWN: WeakSet[Forked] = WeakSet()


def watch(what: Forked) -> None:
    """Notify an object of every future fork."""
    _KNOWN.add(what)


def _in_child() -> None:
    for what in list(_KNOWN):
        what.lost()


def use_in_child() -> GraphcError:
    """The error for using, in a child, an object that was made in its parent."""
    text = "the trainer was made before this process was forked: its devices stayed in the parent"
    help = (
        "make a new trainer here, or start the process by 'spawn': "
        "multiprocessing.get_context('spawn')"
    )
    return GraphcError("G0564", text, help=help)


if sys.platform != "win32":  # where nothing is forked
    os.register_at_fork(after_in_child=_in_child)
