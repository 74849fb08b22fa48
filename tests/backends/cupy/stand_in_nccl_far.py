"""What stands for NCCL between processes: a server has the communicators, and does the calls.

`served()` starts the server, and gives the words of the environment by which processes find it.
"""

from __future__ import annotations

import ctypes
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.managers import BaseManager
from typing import Any

import numpy as np
from backends.cupy.stand_in_nccl import DTYPES, Call, Clique, NcclWorld

ADDRESS, KEY = "GRAPHC_STAND_IN_NCCL", b"stand-in"
LONGEST = 120.0  # seconds that a call waits for other processes


class Served:
    """Communicators, in the memory of the server."""

    def __init__(self) -> None:
        self._world = NcclWorld()
        self._kept: dict[int, tuple[Call, Any, Any]] = {}

    def unique_id(self) -> bytes:
        return self._world.unique_id()

    def join(self, unique: bytes, size: int, rank: int, device: str) -> None:
        with self._world.lock:
            clique = self._world.joining.setdefault(unique, Clique(self._world, size))
            clique.devices[rank] = device

    def devices(self, unique: bytes) -> list[str]:
        with self._world.lock:
            clique = self._world.joining.get(unique)
            return list(clique.devices.values()) if clique is not None else []

    def reach(
        self, unique: bytes, rank: int, method: str, signature: tuple[Any, ...], sent: bytes,
        room: int,
    ) -> int:  # fmt: skip
        """A rank has come to a call; its number, by which `result` is asked for."""
        source, to = np.frombuffer(sent or b"\0", np.uint8), np.zeros(max(room, 1), np.uint8)
        with self._world.lock:
            clique = self._world.joining[unique]
            call = Call(clique, rank, method, source.ctypes.data, to.ctypes.data, signature)
            number = len(self._kept)
            self._kept[number] = call, source, to
            clique.reach(call)
            self._world.lock.notify_all()
        return number

    def result(self, number: int) -> bytes | None:
        """What the rank receives, once the call is done; None if that takes too long."""
        call, _, to = self._kept[number]
        with self._world.lock:
            done = self._world.lock.wait_for(lambda: call.done, LONGEST)
            self._kept[number] = call, None, None
        return to.tobytes() if done else None


class Manager(BaseManager):
    """Its one object is there for all processes."""


@contextmanager
def served() -> Iterator[dict[str, str]]:
    """The environment of processes that are connected."""
    here = Served()
    Manager.register("served", callable=lambda: here, exposed=_EXPOSED)
    server = Manager(("127.0.0.1", 0), KEY).get_server()

    def serve() -> None:
        with suppress(SystemExit):
            server.serve_forever()

    threading.Thread(target=serve, daemon=True).start()
    yield {ADDRESS: json.dumps(server.address)}
    server.stop_event.set()  # type: ignore[attr-defined]


_EXPOSED = ("unique_id", "join", "devices", "reach", "result")


# -- in the processes --------------------------------------------------------------------------


class FarLock(threading.Condition):
    """Nobody here knows when another process has done something."""

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        while not (found := predicate()):
            self.wait(0.02)
        return found


class FarDevices(dict[int, str]):
    """The devices of all ranks."""

    def __init__(self, clique: FarClique) -> None:
        self._clique = clique

    def __setitem__(self, rank: int, device: str) -> None:
        x = self._clique
        x.server.join(x.unique, x.size, rank, device)

    def values(self) -> Any:
        return self._clique.server.devices(self._clique.unique)

    def __len__(self) -> int:
        return len(self.values())


class FarClique(Clique):
    """A communicator of the server."""

    def __init__(self, world: FarWorld, unique: bytes, size: int) -> None:
        super().__init__(world, size)
        self.server, self.unique = world.server, unique
        self.devices: dict[int, str] = FarDevices(self)

    def reach(self, call: Call) -> None:
        count, dtype = call.signature[:2]
        size = count * DTYPES[dtype].itemsize
        sent = size * (self.size if call.method == "reduceScatter" else 1) if call.send else 0
        room = size * (self.size if call.method == "allGather" else 1) if call.receive else 0
        given = ctypes.string_at(call.send, sent) if sent else b""
        number = self.server.reach(self.unique, call.rank, call.method, call.signature, given, room)
        writes = room and not (call.method == "reduce" and call.rank != call.signature[3])
        threading.Thread(target=self._end, args=(call, number, room if writes else 0)).start()

    def _end(self, call: Call, number: int, room: int) -> None:
        got = self.server.result(number)
        if got is not None:
            if room:
                ctypes.memmove(call.receive, got, room)
            call.done = True


class _Joining(dict[bytes, Clique]):
    def __init__(self, world: FarWorld) -> None:
        self._world = world

    def setdefault(self, unique: bytes, clique: Any = None) -> Clique:
        return FarClique(self._world, unique, clique.size)


class FarWorld(NcclWorld):
    """As one process sees the server."""

    def __init__(self) -> None:
        Manager.register("served", exposed=_EXPOSED)
        manager = Manager(tuple(json.loads(os.environ[ADDRESS])), KEY)
        manager.connect()
        self.server: Any = manager.served()  # type: ignore[attr-defined]
        super().__init__(FarLock(), _Joining(self))

    def unique_id(self) -> bytes:
        made: bytes = self.server.unique_id()
        return made
