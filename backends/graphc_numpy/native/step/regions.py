"""Prints the stretches of a step: functions that run one kernel after the other.

    void stretch(ptr frame, i64 thread, i64 threads)

Every thread calls it, with a number of its own; all is done when all have returned. The frame is a
table of words: per-thread scratch memory, errors, the barrier, how often each stretch was run, the
turn of a loop, what all devices share, the device's number, how many there are, and then the base
of every memory block. The calls are a table, too (`calls`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from llvmlite import ir

from graphc.lowering.kernel.code import Blocks, Call, Kernel, Links, Nest, Product
from graphc.lowering.kernel.lowered import Memory, Native, Turn
from graphc_numpy.native.llvm import addresses, machine
from graphc_numpy.native.llvm.vectors import INT64, POINTER, VOID, index
from graphc_numpy.native.step.call_table import (
    ACROSS,
    ALL,
    BARRIER,
    COMMON,
    COUNTS,
    DEVICE,
    DEVICES,
    ERRORS,
    MEMORIES,
    SCRATCH,
    TURN,
    TURNS,
    dispatcher,
    last_meeting,
    print_dispatcher,
    table,
)
from graphc_numpy.native.step.sharing import GRAIN, Reached, Shared, reached_by_others, shared
from graphc_numpy.native.threads.barrier import word

__all__ = [
    "BARRIER", "COMMON", "COUNTS", "DEVICE", "DEVICES", "ERRORS", "MEMORIES", "SCRATCH", "TURN",
]  # words of a frame  # fmt: skip
LINE = 64  # bytes of a cache line


@dataclass(frozen=True)
class Printers:
    """How kernels are printed, measured in units, and how much scratch memory a thread needs."""

    print: Callable[[ir.Module, Kernel, str], ir.Function]
    units: Callable[[Kernel], int]
    scratch_bytes: Callable[[Kernel], int]


@dataclass(frozen=True)
class Stretch:
    """A compiled stretch. scratch: bytes per thread; shared: more than one thread has work.

    alone: of `void f(ptr frame)`, for one thread: each argument more takes ctypes as long as a
    small kernel takes. across: devices meet in it; they do so at its end, too
    """

    address: int
    alone: int
    scratch: int
    shared: bool
    across: bool = False


@dataclass
class Stretches:
    """The stretches of one program, compiled: their addresses are valid as long as this lives.

    code: what their object is kept under
    calls: all of them, as a build that checks addresses counts them
    """

    symbols: machine.Symbols
    found: list[Stretch]
    code: str = ""
    calls: tuple[Call, ...] = ()


def compile_stretches(
    stretches: Sequence[Sequence[Native]], printers: Printers | None = None, grain: int = GRAIN,
    memories: Sequence[Memory] = (),
) -> Stretches:  # fmt: skip
    """Machine code of every stretch, in one object, with each distinct kernel once."""
    printers = printers or _printers()
    reached = reached_by_others(memories)
    lines = [shared(natives, grain, reached) for natives in stretches]
    names = names_of(len(stretches))

    def make() -> ir.Module:
        step = _Step(printers)
        scratch = [_scratch(natives, printers) for natives in stretches]
        for i, (natives, dealt, size) in enumerate(zip(stretches, lines, scratch, strict=True)):
            step.stretch(i, natives, dealt, size)
        _print_sizes(step.module, scratch)
        if machine.target().checked:
            addresses.print_noted(step.module)
        return step.finish()

    description = _description(stretches, grain, reached)
    noted = (addresses.NAME,) if machine.target().checked else ()
    symbols = machine.load(description, make, (*sum(names, ()), "sizes", *noted))
    sizes = (ctypes.c_int64 * len(names))()
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(symbols["sizes"])(ctypes.addressof(sizes))
    found = [
        Stretch(symbols[n], symbols[alone], size, *(_any(dealt, of) for of in _ASKED))
        for (n, alone), dealt, size in zip(names, lines, sizes, strict=True)
    ]
    calls = tuple(c for natives in stretches for native in natives for c in native.calls)
    return Stretches(symbols, found, machine.key_of(description), calls)


def scratch_bytes(stretches: Iterable[Sequence[Native]]) -> int:
    """Bytes of scratch memory that a thread needs which runs all of these."""
    printers = _printers()
    return max((_scratch(natives, printers) for natives in stretches), default=0)


def names_of(stretches: int) -> list[tuple[str, str]]:
    """What the functions of each are called: for any number of threads, and for one."""
    return [(f"stretch{i}", f"alone{i}") for i in range(stretches)]


_ASKED = _TOGETHER, _ACROSS = attrgetter("together"), attrgetter("across")


def _any(lines: list[list[Shared]], of: Callable[[Shared], bool]) -> bool:
    return any(of(x) for line in lines for x in line)


def _print_sizes(module: ir.Module, sizes: Sequence[int]) -> None:
    """`void sizes(ptr out)`: the scratch memory of each stretch, so that an object from the disk
    says it itself."""
    function = ir.Function(module, ir.FunctionType(VOID, [POINTER]), "sizes")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    for i, size in enumerate(sizes):
        b.store(index(size), b.gep(function.args[0], [index(i)], source_etype=INT64), align=8)
    b.ret_void()


def _printers() -> Printers:
    from graphc_numpy.native.gemm import products
    from graphc_numpy.native.loops import index_links, nests
    from graphc_numpy.native.step import tiled_kernels

    def print_kernel(module: ir.Module, kernel: Kernel, name: str) -> ir.Function:
        match kernel:
            case Nest():
                return nests.print_nest(module, kernel, name)
            case Product():
                return products.print_product(module, kernel, name)
            case Links():
                return index_links.print_links(module, kernel, name)
            case Blocks():
                return tiled_kernels.print_blocks(module, kernel, name, found)

    def units(kernel: Kernel) -> int:
        match kernel:
            case Nest():
                return nests.units(kernel)
            case Product():
                return products.units(kernel)
            case Links():
                return index_links.units(kernel)
            case Blocks():
                return tiled_kernels.units(kernel)

    def scratch_bytes(kernel: Kernel) -> int:
        match kernel:
            case Nest():
                return nests.scratch_bytes(kernel)
            case Product():
                return products.scratch_bytes(kernel)
            case Links():
                return index_links.scratch_bytes(kernel)
            case Blocks():
                return tiled_kernels.scratch_bytes(kernel, found)

    found = Printers(print_kernel, units, scratch_bytes)
    return found


def _scratch(natives: Sequence[Native], printers: Printers) -> int:
    kernels = {call.kernel for n in natives for call in n.calls}
    sizes = {printers.scratch_bytes(kernel) for kernel in kernels}
    return -(-max(sizes, default=0) // LINE) * LINE


def _description(stretches: Sequence[Sequence[Native]], grain: int, reached: Reached) -> str:
    """All that the code depends on: kernels once each, and calls by the numbers of kernels."""
    numbers: dict[Kernel, int] = {}
    lines, checked = [f"grain {grain} {reached}"], machine.target().checked
    for natives in stretches:
        lines.append("stretch")
        for native in natives:
            calls = (
                (
                    numbers.setdefault(c.kernel, len(numbers)),
                    *((p.memory, p.offset) for p in c.arguments),
                    *(((x.start, x.stop) for x in c.spans) if checked else ()),
                )
                for c in native.calls
            )
            lines.append(f"{native.turn} {list(calls)}")
    return "\n".join([*lines, *map(repr, numbers)])


@dataclass
class _Step:
    """The module, the kernels that stand in it, and what calls them."""

    printers: Printers
    module: ir.Module = field(default_factory=lambda: ir.Module("step"))
    numbers: dict[Kernel, int] = field(default_factory=dict)
    count: int = 0  # calls so far

    def stretch(
        self, number: int, natives: Sequence[Native], lines: list[list[Shared]], scratch: int
    ) -> None:
        """Print one stretch: a table of its calls, and a function that has them run."""
        words: list[int] = []
        for native, dealt in zip(natives, lines, strict=True):
            for x in dealt:
                words += self.entry(x, native.turn)
        words += last_meeting() if _any(lines, _ACROSS) else []
        kind = ir.FunctionType(VOID, [POINTER, INT64, INT64])
        function = ir.Function(self.module, kind, f"stretch{number}")
        b = ir.IRBuilder(function.append_basic_block("entry"))
        frame, thread, threads = function.args
        calls = table(self.module, f"calls{number}", words)
        stop = b.gep(calls, [index(len(words))], source_etype=INT64)
        b.call(dispatcher(self.module), [frame, calls, stop, index(scratch), thread, threads])
        _count(b, frame, thread, number)
        b.ret_void()
        self.alone(number, function)

    def alone(self, number: int, stretch: ir.Function) -> None:
        """Print the call of a stretch on one thread."""
        kind = ir.FunctionType(VOID, [POINTER])
        function = ir.Function(self.module, kind, f"alone{number}")
        b = ir.IRBuilder(function.append_basic_block("entry"))
        b.call(stretch, [function.args[0], index(0), index(1)])
        b.ret_void()

    def entry(self, x: Shared, turn: Turn) -> list[int]:
        """The words of a call; none for one without work."""
        units = self.printers.units(x.call.kernel)
        self.count += 1
        if not units:
            return []
        number = self.numbers.setdefault(x.call.kernel, len(self.numbers))
        places = [[MEMORIES + p.memory, p.offset] for p in x.call.arguments]
        meet = ALL if x.meet_all else int(x.meet)
        dealt = x.together + ACROSS * x.dealt
        words = [number, units, TURNS[turn], meet, dealt, len(places)]
        if machine.target().checked:
            words += [self.count - 1, self.printers.scratch_bytes(x.call.kernel)]
            spans = ([s.start, s.stop] for s in x.call.spans)
            places = [p + s for p, s in zip(places, spans, strict=True)]
        return [*words, *(word for p in places for word in p)]

    def finish(self) -> ir.Module:
        """The module, with the kernels and what calls them."""
        kernels = [
            (self.printers.print(self.module, kernel, f"k{number}"), len(kernel.params))
            for kernel, number in self.numbers.items()
        ]
        print_dispatcher(self.module, kernels)
        return self.module


def _count(b: ir.IRBuilder, frame: ir.Value, thread: ir.Value, number: int) -> None:
    """One more run of a stretch. It is counted here, where no signal of Python's comes in."""
    with b.if_then(b.icmp_signed("==", thread, index(0))):
        counts = b.load(word(b, frame, COUNTS), typ=POINTER, align=8)
        place = word(b, counts, number)
        b.store(b.add(b.load(place, typ=INT64, align=8), index(1)), place, align=8)
