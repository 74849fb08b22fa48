"""What the lowering must know of the machine that kernels are made for: data, no constants of
modules."""

from __future__ import annotations

from dataclasses import replace

from graphc.lowering.memory.arena import ALIGN
from graphc.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class LoweringTarget:
    """A kind of machine.

    align:     bytes at whose multiples buffers begin in the arena
    waiting:   bytes of values that may wait in memory for a launch that several nests share; None:
               no nest is a launch
    cache:     bytes of what lives between the steps of a tile
    tile_rows: the rows of a tile are a multiple of so many: for fewer, a product is hardly worth
               its packing
    tiled:     bytes of a value that is worth a row tiling
    reread:    bytes of an operand that every tile may read again
    library:   multiplications of a launch from which on a product is left to a library of products;
               None: there is no library

    All from `cache` to `library` decide how sums are cut and who makes them, and so the bits of
    results where nothing is `reproducible`: targets that have them in common compute the same bits.
    """

    align: int
    cache: int
    tile_rows: int
    tiled: int
    reread: int
    library: int | None = None
    waiting: int | None = None


# The cache is most of a second-level one.
CPU = LoweringTarget(align=ALIGN, cache=3 << 18, tile_rows=16, tiled=1 << 18, reread=1 << 16)
# cudaMalloc aligns blocks to 256 bytes, too. What waits is about what the second-level cache of a
# large GPU keeps (50 MB of an H100's). The rest is the CPU's, for its bits.
GPU_ALONE = replace(CPU, align=256, waiting=1 << 26)
# With a library, bits are others, anyway. A product of a million multiplications is about as long
# as a launch; and the steps of a tile are launched one by one, so tiles are large, for fewer
# launches of larger products. Neither number was measured.
GPU = replace(GPU_ALONE, library=1 << 20, cache=1 << 23)
TARGETS = {"cpu": CPU, "gpu": GPU}  # by the names that commands know
