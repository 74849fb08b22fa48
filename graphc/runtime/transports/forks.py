"""What a fork leaves behind: the threads of devices are in the parent only.

A process that was forked has the memory of devices, but none of their threads: whoever waits for
one waits for ever. So what holds such threads is told, in the child, that it is of no use there.
"""

from __future__ import annotations

import os
import sys
from typing import Protocol
from weakref import WeakSet

from graphc.support.errors import GraphcError


class Forked(Protocol):
    """What is told of a fork, in the child: `lost` must not wait for anything."""

    def lost(self) -> None: ...


_KNOWN: WeakSet[Forked] = WeakSet()


def watch(what: Forked) -> None:
    """Tell an object of every fork to come."""
    _KNOWN.add(what)


def _in_child() -> None:
    for what in list(_KNOWN):
        what.lost()


def use_in_child() -> GraphcError:
    """The error of whoever uses, in a child, what was made in its parent."""
    text = "the trainer was made before this process was forked: its devices stayed in the parent"
    help = (
        "make a new trainer here, or start the process by 'spawn': "
        "multiprocessing.get_context('spawn')"
    )
    return GraphcError("G0564", text, help=help)


if sys.platform != "win32":  # where nothing is forked
    os.register_at_fork(after_in_child=_in_child)
