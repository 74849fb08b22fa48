"""A role in a process of its own: made there from a recipe, it answers messages with messages.

For drivers whose roles run in other processes. Errors come back as plain values, as an exception
of a program can't always be rebuilt in another process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from graphc.plan import plan as plans
from graphc.runtime.asynchronous.drivers import Recipe
from graphc.runtime.asynchronous.journal import FileJournal
from graphc.runtime.asynchronous.messages import COORDINATOR, Letters, Message, Recovered
from graphc.runtime.asynchronous.programs import (
    ProgramWorker,
    computing,
    server_names,
    store_of,
)
from graphc.runtime.asynchronous.server import Server
from graphc.runtime.asynchronous.worker import Worker
from graphc.runtime.backends import plugins
from graphc.runtime.machine.blas import limit_blas
from graphc.support.dataclass import dataclass
from graphc.support.errors import GraphcError, Span


@dataclass(frozen=True)
class Failure:
    """An error as plain values. code: that of a GraphcError, else ""."""

    code: str
    message: str
    help: str | None = None
    span: Span | None = None
    labels: tuple[tuple[Span, str], ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        notes = tuple(getattr(error, "__notes__", ()))
        if not isinstance(error, GraphcError):
            return cls("", f"{type(error).__name__}: {error}", notes=notes)
        return cls(error.code, error.message, error.help, error.span, error.labels, notes)

    def error(self) -> Exception:
        """The error again; a RuntimeError for one of another library."""
        more: dict[str, Any] = {"help": self.help, "span": self.span, "labels": self.labels}
        error: Exception = RuntimeError(self.message)
        if self.code:
            error = GraphcError(self.code, self.message, **more)
        for note in self.notes:
            error.add_note(note)
        return error


Answer: TypeAlias = Letters | Failure


@dataclass(frozen=True)
class ServerPlace:
    """Where a server keeps its journal, and what it starts with.

    first: its variables before the run; applied: how many pushes it must have if it is back
    durable: whether the journal must survive the machine's failure
    """

    folder: str
    first: Mapping[str, Any]
    applied: int = 0
    durable: bool = False


class RemoteRole:
    """A role of one run in this process; every call answers with letters, or a failure."""

    def __init__(self, recipe: Recipe, name: str) -> None:
        self.recipe, self.name = recipe, name
        self.role: Server | Worker | None = None
        self._batches: dict[int, Any] = {}

    def serve(self, place: ServerPlace) -> Answer:
        """Become a server."""

        def make() -> Letters:
            plan, backend = self._plan()
            store = store_of(plan, self.name, backend, self.recipe.debug_nans)
            store.load(place.first)
            journal = FileJournal(Path(place.folder) / self.name, place.durable)
            self.role = Server.journaled(self.name, store, journal, place.applied)
            return [(COORDINATOR, Recovered(self.name))]

        return self._answer(make)

    def work(self) -> Answer:
        """Become a worker."""

        def make() -> Letters:
            plan, backend = self._plan()
            programs = ProgramWorker(plan, backend, self.recipe.deadline, self.recipe.debug_nans)
            compute = computing(programs, self.name, self._batches.__getitem__)
            self.role = Worker(self.name, server_names(plan), compute)
            return self.role.start()

        return self._answer(make)

    def on_message(self, message: Message, batch: tuple[int, Any] | None = None) -> Answer:
        """What the role answers. batch: that of a WorkItem, with its number."""
        if batch is not None:
            self._keep(*batch)
        return self._answer(lambda: self._made().on_message(message))

    def on_timer(self) -> Answer:
        """What the role asks again."""
        return self._answer(lambda: self._made().on_timer())

    def variables(self) -> tuple[int, Mapping[str, Any]]:
        """How many pushes a server has applied, and its variables after them."""
        assert isinstance(self.role, Server)
        return self.role.version, self.role.store.variables()

    def _keep(self, number: int, batch: Any) -> None:
        """Keep a batch as long as it can be the one to compute: it may arrive again, and late."""
        work = self.role.work if isinstance(self.role, Worker) else None
        for old in [n for n in self._batches if work is None or n != work.batch]:
            del self._batches[old]
        self._batches[number] = batch

    def _made(self) -> Server | Worker:
        assert self.role is not None, f"{self.name} was not started"
        return self.role

    def _answer(self, act: Callable[[], Letters]) -> Answer:
        try:
            return act()
        except Exception as error:
            return Failure.of(error)

    def _plan(self) -> tuple[plans.Plan, Any]:
        plan = plans.parse(self.recipe.plan)
        assert plan.asynchronous is not None
        self._blas = limit_blas(
            plan.asynchronous.workers
        )  # as in one process: products have the same bits
        return plan, plugins.backend(self.recipe.backend)
