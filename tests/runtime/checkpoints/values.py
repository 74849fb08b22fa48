"""What the tests of checkpoints save: values, and the folders that they are in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from graphc.runtime.checkpoints.checkpoint import Checkpoint
from graphc.runtime.checkpoints.folder import FolderWriter, Portion, read_folder
from graphc.runtime.checkpoints.series import targets

DTYPES = ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?",
          ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)  # fmt: skip


def drawn(seed: int) -> dict[str, Any]:
    """Tensors of every dtype: with NaNs, empty ones, 0-d ones, cut and transposed ones."""
    rng = np.random.default_rng(seed)
    made: dict[str, Any] = {}
    for number, dtype in enumerate(DTYPES):
        wide = np.frombuffer(rng.bytes(6 * 4 * 8), np.uint8).view(dtype)
        if dtype == "?":
            wide = rng.random(24) < 0.5
        wide = wide[:24].reshape(4, 6)
        made[f"w{number}"] = wide
        match number % 4:
            case 0:
                made[f"turned{number}"] = wide.T
            case 1:
                made[f"cut{number}"] = wide[::2, 1:]
            case 2:
                made[f"none{number}"] = wide[:0]
            case 3:
                made[f"one{number}"] = wide[0, 0].reshape(())
    made["ö.layers.0/k@1"] = np.arange(3.0)
    return made


def same(found: Any, want: Any) -> bool:
    """Whether arrays are equal to the bit."""
    found, want = np.asarray(found), np.asarray(want)
    return (found.dtype, found.shape, found.tobytes()) == (want.dtype, want.shape, want.tobytes())


def notes(steps: int) -> dict[str, str]:
    return {"steps": str(steps), "epoch": "0", "example": str(8 * steps), "seed": "0"}


def values(steps: int) -> dict[str, Any]:
    """A small training of two weights and what their optimizer keeps."""
    rng = np.random.default_rng(steps)
    return {"w": rng.normal(size=(5, 3)), "w.m": rng.normal(size=(5, 3)).astype(np.float32),
            "b": rng.normal(size=3).astype(np.float32), "seen": np.array(steps)}  # fmt: skip


def writer(folder: Path, steps: int, number: int = 1, run: str = "run") -> FolderWriter:
    return FolderWriter(
        folder / f".step-{steps:08}.{run}.{number}", lambda: targets(folder, steps), run, number
    )


def write(folder: Path, steps: int, number: int = 1, run: str = "run") -> Path:
    made = Checkpoint(values(steps), notes(steps))
    return writer(folder, steps, number, run).write(Portion.whole(made))


def is_of(folder: Path, steps: int) -> bool:
    """Whether a checkpoint is that of these steps, to the bit. Raises G0509."""
    found, _ = read_folder(folder)
    return is_saved(found, steps)


def is_saved(found: Checkpoint, steps: int) -> bool:
    want = values(steps)
    return (
        found.notes == notes(steps)
        and found.tensors.keys() == want.keys()
        and all(same(found.tensors[name], a) for name, a in want.items())
    )
