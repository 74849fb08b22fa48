"""What the lowering must know of the machine that kernels are made for: data, no constants of
modules."""

from __future__ import annotations

from dataclasses import dataclass, replace

from graphc.lowering.memory.arena import ALIGN


@dataclass(frozen=True, slots=True)
class LoweringTarget:
    """A kind of machine.

    align:     bytes at whose multiples buffers begin in the arena
    cache:     bytes of what lives between the steps of a tile
    tile_rows: the rows of a tile are a multiple of so many: for fewer, a product is hardly worth
               its packing
    tiled:     bytes of a value that is worth a row tiling
    reread:    bytes of an operand that every tile may read again

    The last four decide how sums over tiles are cut, and so the bits of results where nothing is
    `reproducible`: targets that have them in common compute the same bits.
    """

    align: int
    cache: int
    tile_rows: int
    tiled: int
    reread: int


# The cache is most of a second-level one.
CPU = LoweringTarget(align=ALIGN, cache=3 << 18, tile_rows=16, tiled=1 << 18, reread=1 << 16)
# cudaMalloc aligns blocks to 256 bytes, too. The rest is the CPU's, for its bits.
GPU = replace(CPU, align=256)
