"""Prints the stretches of a step: functions that run one kernel after the other.

    void stretch(ptr frame, i64 thread, i64 threads)

Every thread calls it, with a number of its own; all is done when all have returned. The frame is a
table of words: per-thread scratch memory, errors, the barrier, how often each stretch was run, the
turn of a loop, and then the base of every memory block.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from llvmlite import ir

from graphc.kernels.code import Kernel, Nest, Product
from graphc.kernels.lowered import Native
from graphc_numpy.native import machine
from graphc_numpy.native.barrier import print_barrier
from graphc_numpy.native.lanes import I8, INT64, POINTER, VOID, index
from graphc_numpy.native.sharing import GRAIN, Shared, shared

SCRATCH, ERRORS, BARRIER, COUNTS, TURN, MEMORIES = range(6)  # words of a frame
LINE = 64  # bytes of a cache line


@dataclass(frozen=True)
class Printers:
    """How kernels are printed, measured in units, and how much scratch memory a thread needs."""

    print: Callable[[ir.Module, Kernel, str], ir.Function]
    units: Callable[[Kernel], int]
    scratch_bytes: Callable[[Kernel], int]


@dataclass(frozen=True)
class Stretch:
    """A compiled stretch. scratch: bytes per thread; shared: more than one thread has work."""

    address: int
    scratch: int
    shared: bool


@dataclass
class Stretches:
    """The stretches of one program, compiled: their addresses are valid as long as this lives.

    code: what their object is kept under
    """

    symbols: machine.Symbols
    found: list[Stretch]
    code: str = ""


def compile_stretches(
    stretches: Sequence[Sequence[Native]], printers: Printers | None = None, grain: int = GRAIN
) -> Stretches:
    """Machine code of every stretch, in one object, with each distinct kernel once."""
    printers = printers or _printers()
    lines = [shared(natives, grain) for natives in stretches]
    names = tuple(f"stretch{i}" for i in range(len(stretches)))

    def make() -> ir.Module:
        step = _Step(printers)
        scratch = [_scratch(natives, printers) for natives in stretches]
        for i, (natives, dealt, size) in enumerate(zip(stretches, lines, scratch, strict=True)):
            step.stretch(i, natives, dealt, size)
        _print_sizes(step.module, scratch)
        return step.module

    description = _description(stretches, grain)
    symbols = machine.load(description, make, (*names, "sizes"))
    sizes = (ctypes.c_int64 * len(names))()
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(symbols["sizes"])(ctypes.addressof(sizes))
    found = [
        Stretch(symbols[name], size, any(x.together for line in dealt for x in line))
        for name, dealt, size in zip(names, lines, sizes, strict=True)
    ]
    return Stretches(symbols, found, machine.key_of(description))


def _print_sizes(module: ir.Module, sizes: Sequence[int]) -> None:
    """`void sizes(ptr out)`: the scratch memory of each stretch, so that an object from the disk
    says it itself."""
    function = ir.Function(module, ir.FunctionType(VOID, [POINTER]), "sizes")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    for i, size in enumerate(sizes):
        b.store(index(size), b.gep(function.args[0], [index(i)], source_etype=INT64), align=8)
    b.ret_void()


def _printers() -> Printers:
    from graphc_numpy.native import nests, products

    def print_kernel(module: ir.Module, kernel: Kernel, name: str) -> ir.Function:
        match kernel:
            case Nest():
                return nests.print_nest(module, kernel, name)
            case Product():
                return products.print_product(module, kernel, name)

    def units(kernel: Kernel) -> int:
        return nests.units(kernel) if isinstance(kernel, Nest) else products.units(kernel)

    def scratch_bytes(kernel: Kernel) -> int:
        if isinstance(kernel, Nest):
            return nests.scratch_bytes(kernel)
        return products.scratch_bytes(kernel)

    return Printers(print_kernel, units, scratch_bytes)


def _scratch(natives: Sequence[Native], printers: Printers) -> int:
    kernels = {call.kernel for n in natives for call in n.calls}
    sizes = {printers.scratch_bytes(kernel) for kernel in kernels}
    return -(-max(sizes, default=0) // LINE) * LINE


def _description(stretches: Sequence[Sequence[Native]], grain: int) -> str:
    """All that the code depends on: kernels once each, and calls by the numbers of kernels."""
    numbers: dict[Kernel, int] = {}
    lines = [f"grain {grain}"]
    for natives in stretches:
        lines.append("stretch")
        for native in natives:
            calls = (
                (
                    numbers.setdefault(c.kernel, len(numbers)),
                    *((p.memory, p.offset) for p in c.arguments),
                )
                for c in native.calls
            )
            lines.append(f"{native.turn} {list(calls)}")
    return "\n".join([*lines, *map(repr, numbers)])


@dataclass
class _Step:
    """The module, and the kernels that stand in it."""

    printers: Printers
    module: ir.Module = field(default_factory=lambda: ir.Module("step"))
    kernels: dict[Kernel, ir.Function] = field(default_factory=dict)

    def kernel(self, kernel: Kernel) -> ir.Function:
        """The function of a kernel, printed at its first call."""
        found = self.kernels.get(kernel)
        if found is None:
            found = self.printers.print(self.module, kernel, f"k{len(self.kernels)}")
            self.kernels[kernel] = found
        return found

    def stretch(
        self, number: int, natives: Sequence[Native], lines: list[list[Shared]], scratch: int
    ) -> None:
        """Print one stretch: once for a thread alone, once for several."""
        kind = ir.FunctionType(VOID, [POINTER, INT64, INT64])
        function = ir.Function(self.module, kind, f"stretch{number}")
        b = ir.IRBuilder(function.append_basic_block("entry"))
        frame, _, threads = function.args
        alone = b.icmp_signed("==", threads, index(1))
        with b.if_else(alone) as (one, several):
            with one:
                _Calls(self, b, frame, scratch).run(natives, lines, number)
            with several:
                _Together(self, b, frame, scratch).run(natives, lines, number)
        b.ret_void()


class _Calls:
    """Prints the calls of a stretch for one thread that does everything."""

    def __init__(self, step: _Step, b: ir.IRBuilder, frame: ir.Value, scratch: int) -> None:
        self.step, self.b, self.frame, self.size = step, b, frame, scratch
        self.scratch, self.errors = self.word(SCRATCH), self.word(ERRORS)
        self.turn = self.word(TURN, INT64)

    def word(self, number: int, kind: ir.Type = POINTER) -> ir.Value:
        """A word of the frame."""
        address = self.b.gep(self.frame, [index(number)], source_etype=INT64)
        return self.b.load(address, typ=kind, align=8)

    def run(self, natives: Sequence[Native], lines: list[list[Shared]], number: int) -> None:
        """All lines, each where its turn has come; the stretch of that number was run once more."""
        for native, dealt in zip(natives, lines, strict=True):
            match native.turn:
                case "any":
                    self.line(dealt)
                case turn:
                    sign = "==" if turn == "first" else "!="
                    with self.b.if_then(self.b.icmp_signed(sign, self.turn, index(0))):
                        self.line(dealt)
        self.count(number)

    def count(self, number: int) -> None:
        """One more run of a stretch. It is counted here, where no signal of Python's comes in."""
        place = self.b.gep(self.word(COUNTS), [index(number)], source_etype=INT64)
        more = self.b.add(self.b.load(place, typ=INT64, align=8), index(1))
        self.b.store(more, place, align=8)

    def line(self, dealt: list[Shared]) -> None:
        for x in dealt:
            units = self.step.printers.units(x.call.kernel)
            if units:
                self.call(x, index(0), index(units))

    def call(self, x: Shared, begin: ir.Value, end: ir.Value) -> None:
        """The kernel on some of its units."""
        pointers = []
        for p in x.call.arguments:
            base = self.word(MEMORIES + p.memory)
            pointers.append(
                self.b.gep(base, [index(p.offset)], source_etype=I8) if p.offset else base
            )
        function = self.step.kernel(x.call.kernel)
        self.b.call(function, [*pointers, begin, end, self.scratch, self.errors])


class _Together(_Calls):
    """Prints the calls for one of several threads: its part of them, and where it waits."""

    def __init__(self, step: _Step, b: ir.IRBuilder, frame: ir.Value, scratch: int) -> None:
        super().__init__(step, b, frame, scratch)
        _, self.thread, self.threads = b.function.args
        self.first = b.icmp_signed("==", self.thread, index(0))
        self.scratch = b.gep(self.scratch, [b.mul(self.thread, index(scratch))], source_etype=I8)
        self.barrier = self.word(BARRIER)

    def count(self, number: int) -> None:
        with self.b.if_then(self.first):
            super().count(number)

    def meet(self) -> None:
        self.b.call(print_barrier(self.b.module), [self.barrier, self.threads])

    def line(self, dealt: list[Shared]) -> None:
        for x in dealt:
            units = self.step.printers.units(x.call.kernel)
            if x.meet:
                self.meet()
            if units and x.together:
                self.call(x, *self.part(units))
            elif units:
                with self.b.if_then(self.first):
                    self.call(x, index(0), index(units))

    def part(self, units: int) -> tuple[ir.Value, ir.Value]:
        """Units [units * t / T, units * (t + 1) / T)."""
        b, n = self.b, index(units)
        bounds = (self.thread, b.add(self.thread, index(1)))
        begin, end = (b.sdiv(b.mul(n, t), self.threads) for t in bounds)
        return begin, end
