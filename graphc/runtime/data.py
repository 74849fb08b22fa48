"""Data: from a file to global batches, in an order that depends on the seed alone.

A dataset is a dict of arrays with one first dim. Batches are consecutive slices of it (after the
shuffle, where one is asked for); the last one of an epoch may be short, and no example is lost or
read twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from graphc import random
from graphc.errors import GraphcError, Span, did_you_mean
from graphc.types import DTYPES, TensorType, dtype_of

Array = NDArray[Any]


@dataclass(frozen=True)
class Dataset:
    """Arrays by name, all with the same number of examples in their first dim."""

    arrays: Mapping[str, Array]

    def __post_init__(self) -> None:
        sizes = {name: len(a) for name, a in self.arrays.items()}
        if len(set(sizes.values())) > 1:
            raise GraphcError("G0603", f"the arrays differ in their number of examples: {sizes}")

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values()))) if self.arrays else 0

    def batches(
        self, size: int, shuffle_seed: int | None = None, epoch: int = 0
    ) -> Iterator[dict[str, Array]]:
        """Global batches of `size` examples, the last one of the epoch with what is left."""
        order = None if shuffle_seed is None else shuffled(len(self), shuffle_seed, epoch)
        for start in range(0, len(self), size):
            rows: Any = slice(start, start + size)
            if order is not None:
                rows = order[rows]
            yield {name: a[rows] for name, a in self.arrays.items()}

    def steps(self, size: int) -> int:
        """Batches per epoch."""
        return -(-len(self) // size)


def shuffled(n: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The order of n examples in an epoch: the same on every machine and any mesh."""
    draws = random.uniform(np.arange(n, dtype=np.uint64), np.dtype(np.float64),
                           random.key(seed, "shuffle"), epoch)  # fmt: skip
    return np.argsort(draws, kind="stable")


def load(
    kind: str, path: str, inputs: Mapping[str, TensorType], span: Span | None = None
) -> Dataset:
    """The dataset in a file, its arrays checked and cast to what the step's inputs declare.

    Raises G0601 (unknown kind), G0602 (unreadable), G0603 (shapes), G0604 (a missing entry),
    G0605 (dtypes).
    """
    if kind not in READERS:
        hint = did_you_mean(kind, tuple(READERS)) or f"known: {', '.join(READERS)}"
        raise GraphcError("G0601", f"there is no data source '{kind}'", span=span, help=hint)
    try:
        arrays = READERS[kind](Path(path), inputs)
        return Dataset({name: _fit(name, arrays, t) for name, t in inputs.items()})
    except GraphcError as error:
        raise error.at(span) from None
    except FileNotFoundError:
        raise GraphcError("G0602", f"there is no file {path}", span=span) from None
    except (OSError, ValueError, BadZipFile, EOFError) as error:
        raise GraphcError("G0602", f"{path} can't be read: {error}", span=span) from None


def _fit(name: str, arrays: Mapping[str, Array], t: TensorType) -> Array:
    """One entry, checked against its declared type and cast where that loses nothing."""
    if name not in arrays:
        hint = did_you_mean(name, tuple(arrays)) or f"it has: {', '.join(arrays)}"
        raise GraphcError("G0604", f"the data has no entry '{name}'", help=hint)
    a = arrays[name]
    if a.shape[1:] != t.shape[1:] or a.ndim != t.rank:
        shown = ", ".join(map(str, ("n", *a.shape[1:])))
        raise GraphcError("G0603", f"entry '{name}' has shape ({shown}), the step says {t}")
    if not any(a.dtype == d.numpy for d in DTYPES.values()) and a.dtype.kind not in "iub":
        raise GraphcError("G0605", f"entry '{name}' has dtype {a.dtype}, the step says {t.dtype}")
    if a.dtype == t.dtype.numpy:
        return a
    if not _lossless(a, t.dtype.numpy):
        message = f"entry '{name}' is {a.dtype}: casting it to {t.dtype} would change values"
        raise GraphcError("G0605", message, help="store it as what the step declares")
    return a.astype(t.dtype.numpy)


def _lossless(a: Array, to: np.dtype[Any]) -> bool:
    if np.can_cast(a.dtype, to, "safe"):
        return True
    if a.dtype.kind not in "iub" or not a.size:
        return a.dtype.kind == to.kind == "f"  # a narrower float: rounding is what was asked for
    return bool(np.array_equal(a.astype(to).astype(a.dtype), a))


def _read_npz(path: Path, inputs: Mapping[str, TensorType]) -> dict[str, Array]:
    with np.load(path, allow_pickle=False) as file:
        if not hasattr(file, "files"):
            raise ValueError("it is a single array (.npy), not an .npz with named arrays")
        return {name: file[name] for name in file.files}


def _read_csv(path: Path, inputs: Mapping[str, TensorType]) -> dict[str, Array]:
    """Columns by header name. An input of rank 2 takes the columns `name.0`, `name.1`, ..."""
    with open(path, encoding="utf-8") as file:
        header = [name.strip() for name in file.readline().split(",")]
        table = np.loadtxt(file, delimiter=",", ndmin=2)
    columns = dict(zip(header, table.T, strict=True))
    arrays: dict[str, Array] = {}
    for name, t in inputs.items():
        if name in columns:
            arrays[name] = columns[name]
        elif t.rank == 2 and all(f"{name}.{i}" in columns for i in range(t.shape[1])):
            arrays[name] = np.stack([columns[f"{name}.{i}"] for i in range(t.shape[1])], axis=1)
    return {k: _whole(a) if inputs[k].dtype.kind in "iu" else a for k, a in arrays.items()}


def _whole(a: Array) -> Array:
    """A column of whole numbers as integers."""
    return a.astype(np.int64) if np.array_equal(a, np.rint(a)) else a


Reader = Callable[[Path, Mapping[str, TensorType]], dict[str, Array]]
READERS: dict[str, Reader] = {"npz": _read_npz, "csv": _read_csv}


def from_arrays(arrays: Mapping[str, Array]) -> Dataset:
    """A dataset of arrays in memory. Raises G0603, G0605."""
    for a in arrays.values():
        dtype_of(a.dtype)
    return Dataset(arrays)
