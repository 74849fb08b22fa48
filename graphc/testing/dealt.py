"""A transport for comparisons, in which some programs have fewer devices than processes."""

from __future__ import annotations

from collections.abc import Iterable

from graphc.runtime.transports.local import TRANSPORT as LOCAL
from graphc.runtime.transports.processes import Processes
from graphc.runtime.transports.transport import Group, Transport, TransportSession


class Dealt:
    """A transport where devices can be dealt evenly to its processes. Where they can't, every
    process has all devices, and the processes do the same."""

    def __init__(self, transport: Transport) -> None:
        self._transport, self.name = transport, transport.name

    def available(self) -> str | None:
        return self._transport.available()

    def processes(self) -> Processes:
        return self._transport.processes()

    def open(
        self, size: int, *, deadline: float | None = None, groups: Iterable[Group] = ()
    ) -> TransportSession:
        if size % self.processes().count:
            return LOCAL.open(size, deadline=deadline)
        return self._transport.open(size, deadline=deadline, groups=groups)
