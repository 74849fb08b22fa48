"""A worker: pulls variables, computes one batch with them, and pushes the result.

It gets its next batch once its push has its place in the order, and then waits for variables to
which that push was applied. So until it computes again, what it has pushed may lie in its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

from graphc.runtime.asynchronous.messages import (
    COORDINATOR,
    Done,
    Finish,
    Letters,
    Message,
    PulledVariables,
    PullRequest,
    Push,
    Ready,
    Staged,
    VariableValues,
    WorkItem,
)  # fmt: skip
from graphc.support.dataclass import dataclass

Parts: TypeAlias = Sequence[Mapping[str, Any]]
Compute: TypeAlias = Callable[[int, Mapping[str, Any]], tuple[Parts, Mapping[str, Any]]]
# compute(batch, variables): a part for each server, and what the step reports


@dataclass
class Worker:
    """The state machine of a worker: one batch at a time. number: that of the current batch."""

    name: str
    servers: tuple[str, ...]
    compute: Compute
    number: int = 0
    finished: bool = False
    work: WorkItem | None = None
    values: dict[str, VariableValues] = field(default_factory=dict)  # until they are computed with
    versions: dict[str, int] = field(default_factory=dict)  # how new what came is, by server
    parts: Parts = ()
    results: Mapping[str, Any] = field(default_factory=dict)
    staged: set[str] = field(default_factory=set)

    def start(self) -> Letters:
        """Ask for the first batch."""
        return self.on_timer()

    def on_message(self, message: Message) -> Letters:
        """The messages to send in response to a message."""
        match message:
            case WorkItem(number=number) if number == self.number + 1 and self._is_free():
                return self._begin(message)
            case PulledVariables(number=number, server=server) if number == self.number:
                return self._got(server, message)
            case Staged(number=number, server=server) if number == self.number:
                self.staged.add(server)
                return self.on_timer() if self._is_free() else []
            case Finish():
                self.finished = True
                return []
            case WorkItem() | PulledVariables() | Staged():
                return []  # it came before
            case _:
                raise AssertionError(f"{self.name} got {message}")

    def on_timer(self) -> Letters:
        """Ask again for what this worker waits for."""
        if self.finished:
            return []
        if self.work is None:
            return [(COORDINATOR, Ready(self.name))]
        if self._is_free():
            versions = tuple(self.versions[s] for s in self.servers)
            done = Done(self.name, self.number, self.work.batch, versions, self.results)
            return [(COORDINATOR, done)]
        if len(self.versions) < len(self.servers):
            missing = [s for s in self.servers if s not in self.versions]
            return [(s, PullRequest(self.name, self.number, self.work.version)) for s in missing]
        return [
            (server, Push(self.name, self.number, part))
            for server, part in zip(self.servers, self.parts, strict=True)
            if server not in self.staged
        ]

    def _is_free(self) -> bool:
        """Whether all servers have the last push."""
        return self.work is None or len(self.staged) == len(self.servers)

    def _begin(self, work: WorkItem) -> Letters:
        self.work, self.number = work, work.number
        self.values, self.versions, self.staged, self.parts = {}, {}, set(), ()
        return self.on_timer()

    def _got(self, server: str, pulled: PulledVariables) -> Letters:
        if server in self.versions:
            return []
        self.values[server], self.versions[server] = pulled.values, pulled.version
        if len(self.versions) < len(self.servers):
            return []
        assert self.work is not None
        values = {k: x for s in self.servers for k, x in self.values[s].items()}
        self.values = {}
        self.parts, self.results = self.compute(self.work.batch, values)
        return self.on_timer()
