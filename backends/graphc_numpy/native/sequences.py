"""Stretches of all devices of a process as one native call: turns and devices without Python.

    void sequence(ptr job, i64 thread, i64 threads)

A job is a table of words: how many threads each device has, then for each device the address of its
list, which is: how many stretches, then the function and the frame of each. Threads are counted
through the devices; those of one device wait for each other between its stretches.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from llvmlite import ir

from graphc_numpy.native import machine
from graphc_numpy.native.barrier import print_barrier, word
from graphc_numpy.native.calls import BARRIER
from graphc_numpy.native.lanes import INT64, POINTER, VOID, Printer, index
from graphc_numpy.native.threads import STRETCH, Words, new_words

Run: TypeAlias = tuple[int, int]  # the addresses of a stretch and of the frame that it runs with
PER, LISTS = 0, 1  # words of a job


class Job:
    """What each device runs, one after the other. per: threads of a device."""

    def __init__(self, lists: Sequence[Sequence[Run]], per: int) -> None:
        self._lists = [_words([len(runs), *(x for run in runs for x in run)]) for runs in lists]
        self._words = _words([per, *(x.ctypes.data for x in self._lists)])
        self.address = int(self._words.ctypes.data)  # valid as long as the job lives


def _words(values: Sequence[int]) -> Words:
    made = new_words(len(values))
    made[:] = values
    return made


def sequence() -> int:
    """The address of the function."""
    return _symbols()["sequence"]


@lru_cache(maxsize=1)
def _symbols() -> machine.Symbols:
    return machine.load("sequences", _module, ("sequence",))


def _module() -> ir.Module:
    module = ir.Module("sequences")
    function = ir.Function(module, ir.FunctionType(VOID, [POINTER, INT64, INT64]), "sequence")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    p, (job, thread, _) = Printer(b), function.args
    per = b.load(word(b, job, PER), typ=INT64, align=8)
    device, own = b.sdiv(thread, per), b.srem(thread, per)
    runs = b.load(b.gep(word(b, job, LISTS), [device], source_etype=INT64), typ=POINTER, align=8)

    def turn(k: ir.Value) -> None:
        at = b.gep(word(b, runs, 1), [b.mul(k, index(2))], source_etype=INT64)
        stretch = b.load(at, typ=ir.PointerType(STRETCH), align=8)
        frame = b.load(word(b, at, 1), typ=POINTER, align=8)
        later = b.icmp_signed(">", k, index(0))
        with b.if_then(b.and_(later, b.icmp_signed(">", per, index(1)))):
            words = b.load(word(b, frame, BARRIER), typ=POINTER, align=8)
            b.call(print_barrier(module), [words, per])
        b.call(stretch, [frame, own, per])

    p.loop(0, b.load(runs, typ=INT64, align=8), 1, turn)
    b.ret_void()
    return module
