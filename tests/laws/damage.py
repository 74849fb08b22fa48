"""The law of damage: a file that was changed is refused, or gives exactly what was saved."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np

from graphc.runtime.checkpoints.checkpoint import Checkpoint, read_checkpoint, save_variables
from graphc.support.errors import GraphcError

Change = Callable[[bytes, random.Random], bytes]


def values(seed: int) -> dict[str, np.ndarray]:
    """Variables as a training has them: of several dtypes, with empty ones and copies."""
    rng = np.random.default_rng(seed)
    return {
        "w": rng.normal(size=(4, 3)).astype(np.float32), "w.m": np.zeros((4, 3), np.float32),
        "w@copies": rng.normal(size=(2, 4, 3)).astype(np.float32),
        "seen": np.array(seed, np.int64), "none": np.zeros((0, 3), np.float32),
        "wide": rng.normal(size=5), "mask": np.array([True, False, True]),
    }  # fmt: skip


def notes(seed: int) -> dict[str, str]:
    return {"steps": str(seed), "epoch": "1", "example": "16", "local_steps": "1", "seed": "0"}


def original(folder: Path, seed: int) -> bytes:
    """The bytes of a file of that seed."""
    path = folder / f"original.{seed}"
    if not path.exists():
        save_variables(path, values(seed), notes(seed))
    return path.read_bytes()


# -- damages ---------------------------------------------------------------------------------------


def flip(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def flip_in_header(content: bytes, rng: random.Random) -> bytes:
    return flip(content[: _start(content)], rng) + content[_start(content) :]


def flip_in_tensors(content: bytes, rng: random.Random) -> bytes:
    return content[: _start(content)] + flip(content[_start(content) :], rng)


def truncate(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content))]


def append(content: bytes, rng: random.Random) -> bytes:
    return content + rng.randbytes(rng.choice((1, 4, 100)))


def empty(content: bytes, rng: random.Random) -> bytes:
    return b""


def hole(content: bytes, rng: random.Random) -> bytes:
    """A block of zeros, as a crash of the machine leaves it."""
    at = rng.randrange(len(content))
    n = min(rng.choice((1, 16, 512)), len(content) - at)
    return content[:at] + bytes(n) + content[at + n :]


def cut_out(content: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + content[at + rng.choice((1, 4, 64)) :]


def edit_header(content: bytes, rng: random.Random) -> bytes:
    """The header as JSON with one entry changed, renamed, swapped or dropped."""
    header = json.loads(content[8 : _start(content)])
    said = header["__metadata__"]
    names = [name for name in header if name != "__metadata__"]
    a, b = rng.sample(names, 2)
    match rng.randrange(9):
        case 0:
            del header[a]
        case 1:
            header[f"{a}x"] = header.pop(a)
        case 2:
            header[a], header[b] = header[b], header[a]
        case 3:
            header[a]["shape"] = header[a]["shape"][::-1]
        case 4:
            header[a]["dtype"] = rng.choice(("F32", "I32", "F64", "U8", "BF16", "F8_E4M3", "X"))
        case 5:
            del header["__metadata__"]
        case 6:
            del said[rng.choice(sorted(said))]
        case 7:
            said[rng.choice(sorted(said))] = rng.choice(("", "0", "1", "²", "9" * 30, "{}"))
        case 8:
            said["more"] = "1"
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content[_start(content) :]


def length(content: bytes, rng: random.Random) -> bytes:
    """Another length of the header."""
    n = rng.choice((0, 1, 2**63, 2**64 - 1, _start(content), _start(content) - 9))
    return n.to_bytes(8, "little") + content[8:]


def _start(content: bytes) -> int:
    """Where the tensors begin."""
    return 8 + int.from_bytes(content[:8], "little")


DAMAGES: tuple[Change, ...] = (
    flip, flip_in_header, flip_in_tensors, truncate, append, empty, hole, cut_out, edit_header,
    edit_header, length,
)  # fmt: skip


def check_damage(folder: Path, seed: int) -> bool:
    """Fail where a damaged file gives other values; whether it was refused."""
    rng = random.Random(f"damage {seed}")
    good = original(folder, 1)
    if rng.random() < 0.2:  # the beginning of one file, and the end of another
        other, at = original(folder, 2), rng.randrange(len(good))
        changed = good[:at] + other[at:]
    else:
        changed = rng.choice(DAMAGES)(good, rng)
    path = folder / "damaged"
    path.write_bytes(changed)
    try:
        found = read_checkpoint(path)
    except GraphcError as error:
        assert error.code == "G0509" and str(path) in error.message, error
        return True
    wanted = [seed for seed in (1, 2) if is_saved(found, seed)]
    assert wanted, f"damage {seed} gives other values than those that were saved"
    return False


def is_saved(found: Checkpoint, seed: int) -> bool:
    """Whether all tensors and notes are those of the file of that seed, to the bit."""
    want = values(seed)
    return found.notes == notes(seed) and found.tensors.keys() == want.keys() and all(
        (a.dtype, a.shape, a.tobytes()) == (want[n].dtype, want[n].shape, want[n].tobytes())
        for n, a in ((n, np.asarray(a)) for n, a in found.tensors.items())
    )  # fmt: skip
