"""Memory against pages that may not be touched, in which a stray read or write is a failure.

Every block lies at the end of its pages, or, by turns, at their beginning; the pages around it have
no access rights. Fresh memory holds NaN, and huge integers, so that an entry that nobody wrote is
seen where it is used. Between a block and the end of its page is a pattern that must stay.

A stray access does not end the process: a handler of SIGSEGV notes it, opens the page, and lets the
instruction go on. `Guard.check` raises what was noted, so that the case fails that did it. Accesses
outside of all such pages kill the process as ever.
"""

from __future__ import annotations

import ctypes
import mmap
import signal
import sys
import threading
import weakref
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from graphc_numpy import NumpyBackend
from graphc_numpy.memory import USUAL, Allocator

from graphc.runtime.backends.backend import Loaded, Programs

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
PAGE = mmap.PAGESIZE
AROUND = 16 << 20  # bytes without rights on either side: they are addresses, and take no memory
FRESH = np.frombuffer(b"\xff\xff\xff\x7f", np.uint8)  # NaN in every float; i32: 2**31 - 1
CANARY = 0x5A
POSSIBLE = sys.platform == "linux"
NONE, BOTH = 0, mmap.PROT_READ | mmap.PROT_WRITE  # rights: of nobody, to read and to write


class Stray(AssertionError):
    """Memory was touched that is nobody's, or not written where it had to be."""


@dataclass
class Region:
    """The pages of a block, with those around it. strays: how far from the block's first byte; memory: what owns them."""

    first: int  # address of the first page without rights
    last: int  # of the byte behind the last one
    start: int  # of the block
    size: int
    number: int
    strays: list[int] = field(default_factory=list)
    freed: bool = False
    memory: weakref.ref[mmap.mmap] | None = None

    @property
    def pages(self) -> tuple[int, int]:
        """The addresses between which the block's own pages lie."""
        return self.first + AROUND, self.last - AROUND

    def open(self, address: int) -> None:
        """Give the right to touch a page, more of them each time, and note who wanted to."""
        self.strays.append(address - self.start)
        low = address // PAGE * PAGE
        before = self.pages[0]
        high = min(low + (PAGE << min(len(self.strays), 12)), self.last)
        high = min(high, before) if low < before else high
        _protect(low, high - low, BOTH)
        _filled(_at(low, high - low))

    def complaints(self) -> Iterator[str]:
        for at in self.strays[:5]:
            side = "before it" if at < 0 else "behind it"
            yield f"block {self.number} of {self.size} bytes: byte {at} was touched, {side}"
        alive = self.memory() if self.memory is not None else None  # until this has been read
        if self.freed or alive is None:
            return
        low, high = self.pages
        for begin, end in ((low, self.start), (self.start + self.size, high)):
            found = np.flatnonzero(_at(begin, end - begin) != CANARY)
            if found.size:
                at = begin + int(found[0]) - self.start
                yield f"block {self.number} of {self.size} bytes: byte {at} was written"


class Guard:
    """Gives out blocks, in front of such pages and behind them by turns.

    front: whether the first block lies at the beginning of its pages
    """

    def __init__(self, front: bool = False) -> None:
        self.front = front
        self._count = 0
        self._regions: list[Region] = []
        self._lock = threading.Lock()

    def block(self, size: int) -> Bytes:
        """So many bytes, full of NaN."""
        if not POSSIBLE:
            return _filled(np.empty(size, np.uint8))
        with self._lock:
            self._count += 1
            front = self.front ^ (self._count % 2 == 0)
            return self._new(size, front)

    def copy(self, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """An array of a block of its own with the same entries."""
        made = self.block(x.nbytes).view(x.dtype).reshape(x.shape)
        made[...] = x
        return made

    def allocator(self, apart: bool = False) -> Allocator:
        """What devices take their memory from."""
        return Allocator(self.block, apart)

    def check(self, what: str = "") -> None:
        """Raise Stray if a block's surroundings were touched since the last time."""
        with self._lock:
            found = [line for region in self._regions for line in region.complaints()]
            self._regions = [region for region in self._regions if not region.freed]
        for region in self._regions:
            region.strays.clear()
        if found:
            raise Stray("\n".join([*([what] if what else []), *found[:10]]))

    def _new(self, size: int, front: bool) -> Bytes:
        whole = -(-max(size, 1) // PAGE) * PAGE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        memory = mmap.mmap(-1, whole + 2 * AROUND, flags)
        first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        at = AROUND if front else AROUND + whole - size
        _protect(first, AROUND, NONE)
        _protect(first + AROUND + whole, AROUND, NONE)
        own = np.frombuffer(memory, np.uint8, whole, AROUND)
        own[:] = CANARY
        region = Region(first, first + len(memory), first + at, size, self._count)
        region.memory = weakref.ref(memory)
        _TRAP.watch(region, memory)
        self._regions.append(region)
        return _filled(np.frombuffer(memory, np.uint8, size, at))


def _filled(x: Bytes) -> Bytes:
    """The bytes, with what no step may use in them."""
    whole = x.size // 4 * 4
    x[:whole].reshape(-1, 4)[:] = FRESH
    x[whole:] = FRESH[: x.size - whole]
    return x


def _at(address: int, size: int) -> Bytes:
    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8)


# -- signals ---------------------------------------------------------------------------------------


class _Action(ctypes.Structure):
    """`struct sigaction` of Linux, as its C libraries have it."""

    _fields_ = [
        ("handler", ctypes.c_void_p), ("mask", ctypes.c_uint8 * 128), ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    ]  # fmt: skip


SA_SIGINFO, SA_NODEFER = 4, 0x40000000
HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
FAULTED = 16  # where in siginfo the address stands that was touched


class _Trap:
    """The handler of SIGSEGV, and all regions that there are, by their addresses."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._regions: list[Region] = []
        self._lock = threading.RLock()
        self._handler = HANDLER(self._caught)
        self._before = _Action()
        self._set = False

    def watch(self, region: Region, memory: mmap.mmap) -> None:
        """Note what touches the surroundings of a region, as long as its memory lives."""
        with self._lock:
            self._begin()
            at = bisect_right(self._starts, region.first)
            self._starts.insert(at, region.first)
            self._regions.insert(at, region)
        weakref.finalize(memory, self._forget, region).atexit = False

    def _begin(self) -> None:
        if self._set:
            return
        self._set = True
        mine = _Action(ctypes.cast(self._handler, ctypes.c_void_p), flags=SA_SIGINFO | SA_NODEFER)
        _call("sigaction", signal.SIGSEGV, ctypes.byref(mine), ctypes.byref(self._before))

    def _forget(self, region: Region) -> None:
        region.freed = True
        with self._lock:
            at = self._starts.index(region.first)
            del self._starts[at], self._regions[at]

    def _caught(self, number: int, info: int, context: int) -> None:
        """Runs on the thread that touched something, in the middle of its code."""
        address = ctypes.c_uint64.from_address(info + FAULTED).value
        at = bisect_right(self._starts, address) - 1
        region = self._regions[at] if at >= 0 else None
        if region is not None and address < region.last:
            region.open(address)
        else:  # not ours: what handled it before does so, when the instruction is done again
            _call("sigaction", signal.SIGSEGV, ctypes.byref(self._before), None)


_TRAP = _Trap()


def _protect(address: int, size: int, rights: int) -> None:
    _call("mprotect", ctypes.c_void_p(address), ctypes.c_size_t(size), rights)


def _call(name: str, *arguments: Any) -> None:
    """A function of the system's library, which must succeed."""
    if getattr(_LIBRARY, name)(*arguments):
        raise OSError(ctypes.get_errno(), name)


_LIBRARY = ctypes.PyDLL(None, use_errno=True) if POSSIBLE else None


@contextmanager
def guarded_devices(front: bool = False, apart: bool = False) -> Iterator[None]:
    """All devices of the NumPy backend take their memory from a guard, which is asked at the end."""
    guard, load = Guard(front), NumpyBackend.load

    def guarded(self: NumpyBackend, programs: Programs) -> Loaded:
        if self.allocator is USUAL:
            self = replace(self, allocator=guard.allocator(apart))
        return load(self, programs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NumpyBackend, "load", guarded)
        yield
    guard.check()


@contextmanager
def fresh_arrays() -> Iterator[None]:
    """NumPy's own empty arrays hold what no step may use, too."""
    empty, empty_like = np.empty, np.empty_like

    def fresh(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if x.size and not x.dtype.hasobject:
            _filled(x.reshape(-1, order="A").view(np.uint8))
        return x

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "empty", lambda *xs, **options: fresh(empty(*xs, **options)))
        patch.setattr(np, "empty_like", lambda *xs, **options: fresh(empty_like(*xs, **options)))
        yield
