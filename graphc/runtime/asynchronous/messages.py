"""The messages of the asynchronous roles. Each names its sender, and contains everything it needs.

A message may arrive twice, late, or never: whoever waits for an answer asks again, and asking again
changes nothing. A worker numbers its work 1, 2, ...; (worker, number) identifies a push.

    worker -> coordinator   Ready            give me the next batch
    coordinator -> worker   WorkItem         this batch, with variables at least this new
    worker -> servers       PullRequest      send your variables, at least this new
    server -> worker        PulledVariables  the variables, and how new they are
    worker -> servers       Push             the computed gradients
    server -> worker        Staged           I have stored the push
    worker -> coordinator   Done             all servers have it
    coordinator -> servers  ApplyPush        at this position in the order
    server -> coordinator   Applied          it is applied
    server -> coordinator   Snapshot         all my variables after that push
    server -> coordinator   Recovered        I have started; what have I missed?
    coordinator -> worker   Finish           there is no more work for you
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from graphc.support.dataclass import dataclass

VariableValues: TypeAlias = Mapping[str, Any]
COORDINATOR = "coordinator"


@dataclass(frozen=True, slots=True)
class Ready:
    """A new worker asks for its first batch."""

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
    values: VariableValues


@dataclass(frozen=True, slots=True)
class Push:
    """One server's part of what a worker computed."""

    worker: str
    number: int
    values: VariableValues


@dataclass(frozen=True, slots=True)
class Staged:
    """A server has its part of a push, not applied yet."""

    server: str
    number: int


@dataclass(frozen=True, slots=True)
class Done:
    """All servers have their parts of a push; also asks for the next batch.

    versions: how new the variables of each server were; results: what the step reports
    """

    worker: str
    number: int
    batch: int
    versions: tuple[int, ...]
    results: VariableValues


@dataclass(frozen=True, slots=True)
class ApplyPush:
    """Apply a push as number `order` of all, counted from 0.

    snapshot: send the variables as they are then: all servers' together are those of one moment
    """

    order: int
    worker: str
    number: int
    snapshot: bool = False


@dataclass(frozen=True, slots=True)
class Applied:
    """A server has applied all pushes up to `order`."""

    server: str
    order: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All variables of a server after `version` pushes, and no more."""

    server: str
    version: int
    values: VariableValues


@dataclass(frozen=True, slots=True)
class Recovered:
    """A server has started, and may have missed messages."""

    server: str


@dataclass(frozen=True, slots=True)
class Finish:
    """There is no more work."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker has failed; sent by whoever monitors it."""

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
    | Snapshot
    | Recovered
    | Finish
    | Lost
)
Letters: TypeAlias = list[tuple[str, Message]]  # (to whom, what)
