"""What a plug-in needs of a machine, as `graphc doctor` lists it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from graphc.support.dataclass import dataclass


@dataclass(frozen=True)
class Requirement:
    """Something that a plug-in needs, or uses where it is there.

    found:   what there is, in words; "" if nothing is
    problem: why it can't be used, in words; "" if it can
    mend:    what would help: a command, or what to look at
    needed:  whether the plug-in can't run without it
    """

    name: str
    found: str = ""
    problem: str = ""
    mend: str = ""
    needed: bool = True


@runtime_checkable
class Diagnosed(Protocol):
    """A plug-in that tells what it needs."""

    def requirements(self) -> tuple[Requirement, ...]: ...
