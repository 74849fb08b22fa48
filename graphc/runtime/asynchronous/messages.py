"""The messages of the asynchronous roles. Each says who sent it, and carries all that it needs.

A message may come twice, late, or never: whoever waits for an answer asks again, and to ask again
changes nothing. A worker's pieces of work are numbered 1, 2, ...; (worker, number) names a push.

    worker -> coordinator   Ready       give me my next piece of work
    coordinator -> worker   Work        this batch, on variables at least this new
    worker -> servers       Pull        your variables, at least this new
    server -> worker        Values      here they are, and how new
    worker -> servers       Push        what was computed
    server -> worker        Staged      I have it, and will not lose it
    worker -> coordinator   Done        all servers have it
    coordinator -> servers  Apply       in this place of the order
    server -> coordinator   Applied     so it is done
    coordinator -> worker   Finish      there is no more work for you
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Values_: TypeAlias = Mapping[str, Any]
COORDINATOR = "coordinator"


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker that is new asks for its first piece of work."""

    worker: str


@dataclass(frozen=True, slots=True)
class WorkItem:
    """Compute a batch on variables to which at least `version` pushes have been applied."""

    number: int
    batch: int
    version: int


@dataclass(frozen=True, slots=True)
class PullRequest:
    """Send your variables as soon as `version` pushes have been applied to them."""

    worker: str
    number: int
    version: int


@dataclass(frozen=True, slots=True)
class PulledVariables:
    """The variables of one server after `version` pushes."""

    server: str
    number: int
    version: int
    values: Values_


@dataclass(frozen=True, slots=True)
class Push:
    """One server's part of what a worker computed."""

    worker: str
    number: int
    values: Values_


@dataclass(frozen=True, slots=True)
class Staged:
    """A server has its part of a push, not applied yet."""

    server: str
    number: int


@dataclass(frozen=True, slots=True)
class Done:
    """All servers have their parts of a push; also asks for the next piece of work.

    versions: how new the variables of each server were; results: what the step reports
    """

    worker: str
    number: int
    batch: int
    versions: tuple[int, ...]
    results: Values_


@dataclass(frozen=True, slots=True)
class ApplyPush:
    """Apply a push as number `order` of all, counted from 0."""

    order: int
    worker: str
    number: int


@dataclass(frozen=True, slots=True)
class Applied:
    """A server has applied all pushes up to `order`."""

    server: str
    order: int


@dataclass(frozen=True, slots=True)
class Finish:
    """There is no more work."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker is gone, says whoever watches over it."""

    worker: str


Message: TypeAlias = (
    Ready
    | WorkItem
    | PullRequest
    | PulledVariables
    | Push
    | Staged
    | Done
    | ApplyPush
    | Applied
    | Finish
    | Lost
)
Letters: TypeAlias = list[tuple[str, Message]]  # (to whom, what)
