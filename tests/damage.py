"""Damaged files: bytes changed by a seed, as a bad disk, a broken download or an enemy would."""

from __future__ import annotations

import random
import struct
import zlib


def damaged(data: bytes, seed: int) -> bytes:
    """The bytes after one to four changes: flips, cuts, splices, lies about numbers."""
    rng = random.Random(seed)
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        rng.choice(CHANGES)(made, rng)
    return bytes(made)


def _flip(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 8))):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _remove(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    del data[at : at + rng.choice((1, 2, 16, 256))]


def _repeat(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = data[at : at + rng.choice((1, 2, 16, 256))] * rng.choice((1, 1, 50))


def _insert(data: bytearray, rng: random.Random) -> None:
    words = (
        b"\0",
        b"\xff\xfe",
        b"\n",
        b",",
        b"'",
        b"(" * 50,
        b"nan",
        b"1e999",
        b"\x93NUMPY",
        b"PK\3\4",
    )
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.choice(words)


def _number(data: bytearray, rng: random.Random) -> None:
    """A length, an offset or a method becomes another one."""
    if len(data) >= 4:
        at = rng.randrange(len(data) - 3)
        value = rng.choice((0, 1, 8, 12, 14, 93, 2**16 - 1, 2**31 - 1, 2**32 - 1))
        data[at : at + 4] = struct.pack("<I", value)


def _digit(data: bytearray, rng: random.Random) -> None:
    """A digit of the text in it becomes another sign."""
    digits = [i for i, x in enumerate(data) if 48 <= x <= 57]
    if digits:
        at = rng.choice(digits)
        data[at : at + 1] = rng.choice((b"9" * 12, b"-1", b"0", b"x", b"1e9", b"", b"None"))


CHANGES = (_flip, _flip, _cut, _remove, _repeat, _insert, _number, _digit, _digit)


def resealed(archive: bytes) -> bytes:
    """A .zip whose checksums are those of its stored members again, so that readers go on."""
    made = bytearray(archive)
    sums: dict[bytes, int] = {}
    at = 0
    while (at := made.find(b"PK\3\4", at)) >= 0 and at + 30 <= len(made):
        names, extra = struct.unpack_from("<HH", made, at + 26)
        size = _size_of(made, at + 30 + names, extra, struct.unpack_from("<I", made, at + 18)[0])
        start = at + 30 + names + extra
        crc = zlib.crc32(made[start : start + size])
        sums[bytes(made[at + 30 : at + 30 + names])] = crc
        struct.pack_into("<I", made, at + 14, crc)
        at += 4
    at = 0
    while (at := made.find(b"PK\1\2", at)) >= 0 and at + 46 <= len(made):
        (names,) = struct.unpack_from("<H", made, at + 28)
        name = bytes(made[at + 46 : at + 46 + names])
        struct.pack_into("<I", made, at + 16, sums.get(name, 0))
        at += 4
    return bytes(made)


def _size_of(data: bytearray, at: int, length: int, size: int) -> int:
    """The size of a member; NumPy writes it as a 64-bit number, in an extra field."""
    if size == 2**32 - 1 and length >= 20 and at + 20 <= len(data):
        return int(struct.unpack_from("<Q", data, at + 12)[0])
    return size
