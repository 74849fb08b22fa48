"""Counter-based random numbers: a pure function of (seed, key, step, global element index).

So they depend neither on the mesh, nor on the passes, nor on the order of evaluation. Each element
has a counter of its own: its row-major index in the whole tensor (64 bits) and the step (64 bits).
The generator is Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
1, 2, 3", SC'11. Of its four words, u(i) and the normal's angle use the first two.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)  # added to the key after every round
MASK = 0xFFFFFFFF
_BITS = {2: 8, 4: 24, 8: 53}  # random bits of a float, by its bytes (8 bits fit bf16 and f16)

Key = tuple[int, int]


def key(seed: int, name: str) -> Key:
    """The Philox key of the draw called `name`."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")


def global_indices(
    shape: tuple[int, ...], offsets: tuple[int, ...], whole: tuple[int, ...]
) -> NDArray[np.uint64]:
    """Row-major indices, in a tensor of shape `whole`, of the piece of `shape` at `offsets`."""
    index = np.zeros(shape, np.uint64)
    stride = 1
    for dim in reversed(range(len(whole))):
        line = (np.arange(shape[dim], dtype=np.uint64) + np.uint64(offsets[dim])) * np.uint64(
            stride
        )
        index += line.reshape([-1 if i == dim else 1 for i in range(len(shape))])
        stride *= whole[dim]
    return index


def philox(counter: Words, key: Key) -> Words:
    """Four random words (32 bits each, held in u64) for each counter of four words."""
    a, b, c, d = counter
    k0, k1 = key
    mask, half = np.uint64(MASK), np.uint64(32)
    for _ in range(ROUNDS):
        p, q = a * np.uint64(MULTIPLIERS[0]), c * np.uint64(MULTIPLIERS[1])
        a, b, c, d = (
            (q >> half) ^ b ^ np.uint64(k0), q & mask, (p >> half) ^ d ^ np.uint64(k1), p & mask,
        )  # fmt: skip
        k0, k1 = (k0 + WEYL[0]) & MASK, (k1 + WEYL[1]) & MASK
    return a, b, c, d


def words(indices: NDArray[np.uint64], key: Key, step: int) -> Words:
    """The four words of each element at a step."""
    low, high = indices & np.uint64(MASK), indices >> np.uint64(32)
    step &= (1 << 64) - 1
    return philox((low, high, np.full_like(low, step & MASK), np.full_like(low, step >> 32)), key)


def uniform(indices: NDArray[np.uint64], dtype: np.dtype[Any], key: Key, step: int) -> NDArray[Any]:
    """Uniform in [0, 1): a multiple of 2^-24 in f32, 2^-53 in f64, 2^-8 in f16 and bf16."""
    bits = _BITS[dtype.itemsize]
    a, b, _, _ = words(indices, key, step)
    number = (a << np.uint64(32) | b) >> np.uint64(64 - bits)
    return np.asarray(number.astype(np.float64) * 2.0**-bits).astype(dtype)


def normal(indices: NDArray[np.uint64], dtype: np.dtype[Any], key: Key, step: int) -> NDArray[Any]:
    """Normal with mean 0 and deviation 1 (Box and Muller 1958), computed in f64."""
    a, b, _, _ = words(indices, key, step)
    radius = np.sqrt(-2 * np.log((a + np.uint64(1)).astype(np.float64) * 2.0**-32))
    angle = b.astype(np.float64) * (2 * np.pi * 2.0**-32)
    return np.asarray(radius * np.cos(angle)).astype(dtype)
