"""What the lowering must know of the machine that kernels are made for: data, no constants of
modules."""

from __future__ import annotations

from dataclasses import replace

from graphc.lowering.memory.arena import ALIGN
from graphc.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class BlockMemory:
    """Fast memory of a block of threads, which is gone when the block is over.

    bytes:  of it, for what lives between the steps of a tile
    tiles:  that keep all of the machine at work: a tile has fewer rows than there is room for, if
            there would be fewer tiles
    rows:   of a tile, at least and at most; powers of two
    reread: every tile reads the operands of products again that have no rows of it, such as keys:
            at most so many bytes for each byte that stays in this memory
    """

    bytes: int
    tiles: int
    rows: tuple[int, int]
    reread: int


@dataclass(frozen=True, slots=True)
class LoweringTarget:
    """A kind of machine.

    align:     bytes at whose multiples buffers begin in the arena
    waiting:   bytes of values that may wait in memory for a launch that several nests share; None:
               no nest is a launch
    shared:    memory in which what lives between the steps of a tile may lie, if one block of
               threads does them all; None: there is none. Tiles are made for it only where nothing
               is added up over them, so it decides no bits
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
    shared: BlockMemory | None = None


# The cache is most of a second-level one.
CPU = LoweringTarget(align=ALIGN, cache=3 << 18, tile_rows=16, tiled=1 << 18, reread=1 << 16)
# cudaMalloc aligns blocks to 256 bytes, too. What waits is about what the second-level cache of a
# large GPU keeps (50 MB of an H100's). A block of threads can share 99 KB on any GPU that runs our
# kernels, of which products take up to 18 for a tile of 32 rows. The rest is the CPU's, for its
# bits.
SHARED = BlockMemory(bytes=80 << 10, tiles=256, rows=(8, 32), reread=32)
GPU_ALONE = replace(CPU, align=256, waiting=1 << 26, shared=SHARED)
# With a library, bits are others, anyway. A product of a million multiplications is about as long
# as a launch; and where the steps of a tile are launched one by one, tiles are large, for fewer
# launches of larger products. Tiles of only 8 rows in shared memory, or with much more to multiply
# than to keep, would read keys and values too often to be better than that. None of these numbers
# was measured.
GPU = replace(
    GPU_ALONE, library=1 << 20, cache=1 << 23, shared=replace(SHARED, rows=(16, 32), reread=8)
)
TARGETS = {"cpu": CPU, "gpu": GPU}  # by the names that commands know
