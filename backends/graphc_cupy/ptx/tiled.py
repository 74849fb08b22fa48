"""Kernels that run one after the other on a block of rows: a block function that calls theirs.

All threads of a block do each part together, and wait for each other before the next one. What
lives only between the parts is in the block's own memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from math import prod

from graphc_llvm.vectors import I8, Vector, index
from llvmlite import ir

from graphc.ir.types import I64
from graphc.lowering.kernel.code import OWN, Gemm, Nest, TiledKernel, TilePart
from graphc.support.dataclass import dataclass
from graphc_cupy.ptx import nests, products
from graphc_cupy.ptx.threads import BlockFunction, BlockMachine, block_function

Values = list[ir.Value]
MOST_BLOCKS = 512  # of a launch, which have memory of their own: some for every multiprocessor
LINE = 256  # bytes: where a block's own memory, and that of a part in it, begin


def units(x: TiledKernel) -> int:
    """Blocks of rows, or outer indices where these blocks are in order."""
    return prod(x.outer) * (1 if x.ordered else x.count)


def grain(x: TiledKernel, machine: BlockMachine) -> int:
    """What a block of threads does: no more blocks than there is memory for."""
    return max(1, -(-units(x) // MOST_BLOCKS))


def own_bytes(x: TiledKernel) -> int:
    """What lives between the parts, and then what a part needs."""
    return _lines(x.own) + _lines(max((_own_bytes(k) for k in _parts(x)), default=0))


def print_tiles(module: ir.Module, x: TiledKernel, name: str, machine: BlockMachine) -> ir.Function:
    """The block function of a tiled kernel."""
    functions = {k: _function(module, k, machine) for k in _parts(x)}
    f = block_function(module, x.params, name, machine)
    for other in functions.values():
        f.threads.calls(other)

    def unit(number: ir.Value) -> None:
        if x.ordered:
            f.p.loop(0, x.count, 1, lambda k: _Tile(f, x, functions, number, k).run())
        else:
            outer, k = (o(number, index(x.count)) for o in (f.p.b.udiv, f.p.b.urem))
            _Tile(f, x, functions, outer, k).run()

    f.p.loop(f.begin, f.end, 1, unit)
    return f.done()


def _lines(size: int) -> int:
    return -(-size // LINE) * LINE


def _parts(x: TiledKernel) -> Iterable[Nest | Gemm]:
    """The kernels of which some block runs each, once."""
    return dict.fromkeys(k for part in x.steps for k in _used(x, part))


def _used(x: TiledKernel, part: TilePart) -> Iterable[Nest | Gemm]:
    first, middle, last = part.kernels
    return ((last,), (first, last), (first, middle, last))[min(x.count, 3) - 1]


def _units(kernel: Nest | Gemm) -> int:
    return products.units(kernel) if isinstance(kernel, Gemm) else nests.units(kernel)


def _own_bytes(kernel: Nest | Gemm) -> int:
    return products.own_bytes(kernel) if isinstance(kernel, Gemm) else nests.own_bytes(kernel)


def _function(module: ir.Module, kernel: Nest | Gemm, machine: BlockMachine) -> ir.Function:
    """The block function of a part, of which other tiled kernels may have one like it."""
    name = f"part_{hashlib.sha256(repr(kernel).encode()).hexdigest()[:16]}"
    printed: ir.Function | None = module.globals.get(name)
    if printed is not None:
        return printed
    if isinstance(kernel, Gemm):
        return products.print_gemm(module, kernel, name, machine)
    return nests.print_nest(module, kernel, name, machine)


@dataclass(frozen=True)
class _Tile:
    """Prints the calls for one block of rows: number `block` of the outer index `outer`."""

    f: BlockFunction
    x: TiledKernel
    functions: dict[Nest | Gemm, ir.Function]
    outer: ir.Value
    block: ir.Value

    def run(self) -> None:
        """All parts, one after the other."""
        offsets = self.f.p.positions(self.outer, self.x.outer)
        self._note([*offsets, self.f.p.b.mul(self.block, index(self.x.rows))])
        for part in self.x.steps:
            self._part(part, self._arguments(part, [*offsets, self.block]))
            self.f.threads.barrier()

    def _note(self, positions: Values) -> None:
        """Own memory begins with the outer indices, and the first row."""
        p, threads = self.f.p, self.f.threads

        def write() -> None:
            for k, x in enumerate(positions):
                p.store(Vector(x, I64), p.at(self.f.own, k, I64))

        p.when(p.b.icmp_signed("==", threads.index, index(0)), write)
        threads.barrier()

    def _arguments(self, part: TilePart, offsets: Values) -> Values:
        """Where the parameters of a part begin."""
        b, found = self.f.p.b, Values()
        for x in part.offsets:
            at: ir.Value = index(x.offset)
            for k, step in zip(offsets, x.steps, strict=True):
                at = b.add(at, b.mul(k, index(step)))
            base = self.f.own if x.slot == OWN else self.f.pointers[x.slot]
            found.append(b.gep(base, [at], source_etype=I8))
        return found

    def _part(self, part: TilePart, arguments: Values) -> None:
        """The kernel of the first block, of one between, or of the last."""
        first, middle, last = part.kernels
        b, count = self.f.p.b, self.x.count

        def call(kernel: Nest | Gemm) -> None:
            own = b.gep(self.f.own, [index(_lines(self.x.own))], source_etype=I8)
            ends = [index(0), index(_units(kernel)), own, self.f.errors]
            b.call(self.functions[kernel], [*arguments[: len(kernel.params)], *ends])

        def before_last() -> None:
            is_first = b.icmp_signed("==", self.block, index(0))
            self._either(is_first, first, first if count == 2 else middle, call)

        if count == 1 or first == middle == last:
            call(last)
            return
        with b.if_else(b.icmp_signed("==", self.block, index(count - 1))) as (then, otherwise):
            with then:
                call(last)
            with otherwise:
                before_last()

    def _either(
        self, where: ir.Value, one: Nest | Gemm, other: Nest | Gemm,
        call: Callable[[Nest | Gemm], None],
    ) -> None:  # fmt: skip
        if one == other:
            call(one)
            return
        with self.f.p.b.if_else(where) as (then, otherwise):
            with then:
                call(one)
            with otherwise:
                call(other)


__all__ = ["grain", "own_bytes", "print_tiles", "units"]
