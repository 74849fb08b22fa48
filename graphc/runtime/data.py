"""Data: from a file to global batches, in an order that depends on the seed alone.

A dataset is a dict of arrays with one first dim. Batches are consecutive slices of it (after the
shuffle, where one is asked for); the last one of an epoch may be short, and no example is lost or
read twice.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from graphc import random
from graphc.errors import GraphcError, Span, did_you_mean
from graphc.types import DTYPES, DType, TensorType, dtype_of

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
        return Dataset({name: _fit(name, arrays[name], t) for name, t in inputs.items()})
    except GraphcError as error:
        raise error.at(span) from None
    except FileNotFoundError:
        raise GraphcError("G0602", f"there is no file {path}", span=span) from None
    except (OSError, ValueError, BadZipFile, EOFError) as error:
        raise GraphcError("G0602", f"{path} can't be read: {error}", span=span) from None


def _missing(name: str, known: Iterable[str]) -> GraphcError:
    names = tuple(known)
    hint = did_you_mean(name, names) or f"it has: {', '.join(names)}"
    return GraphcError("G0604", f"the data has no entry '{name}'", help=hint)


def _fit(name: str, a: Array, t: TensorType) -> Array:
    """One entry, checked against its declared type and cast where that loses nothing."""
    if a.shape[1:] != t.shape[1:] or a.ndim != t.rank:
        shown = ", ".join(map(str, ("n", *a.shape[1:]))) if a.ndim else ""
        raise GraphcError("G0603", f"entry '{name}' has shape ({shown}), the step says {t}")
    if not any(a.dtype == d.numpy for d in DTYPES.values()) and a.dtype.kind not in "iub":
        raise GraphcError("G0605", f"entry '{name}' has dtype {a.dtype}, the step says {t.dtype}")
    if a.dtype == t.dtype.numpy:
        return a
    if not _lossless(a, t.dtype):
        message = f"entry '{name}' is {a.dtype}: casting it to {t.dtype} would change values"
        raise GraphcError("G0605", message, help="store it as what the step declares")
    return a.astype(t.dtype.numpy)


def _lossless(a: Array, to: DType) -> bool:
    if np.can_cast(a.dtype, to.numpy, "safe") or not a.size:
        return True
    if a.dtype.kind not in "iub":
        return (
            dtype_of(a.dtype).kind == to.kind == "f"
        )  # rounding is what a narrower float asks for
    return bool(np.array_equal(a.astype(to.numpy).astype(a.dtype), a))


def _read_npz(path: Path, inputs: Mapping[str, TensorType]) -> dict[str, Array]:
    with open(path, "rb") as raw:
        file = np.load(raw, allow_pickle=False)
        if isinstance(file, np.ndarray):
            raise ValueError("it is a single array (.npy), not an .npz with named arrays")
        for name in inputs:
            if name not in file.files:
                raise _missing(name, file.files)
        return {name: file[name] for name in inputs}


def _read_csv(path: Path, inputs: Mapping[str, TensorType]) -> dict[str, Array]:
    """Columns by header name. An input of rank 2 takes the columns `name.0`, `name.1`, ..."""
    columns = _columns(path)
    arrays: dict[str, Array] = {}
    for name, t in inputs.items():
        parts = [f"{name}.{i}" for i in range(t.shape[1])] if t.rank == 2 else []
        if name in columns:
            arrays[name] = columns[name]
        elif parts and all(part in columns for part in parts):
            arrays[name] = np.stack([columns[part] for part in parts], axis=1)
        else:
            raise _missing(name, columns)
    return {k: _whole(a) if inputs[k].dtype.kind in "iu" else a for k, a in arrays.items()}


def _columns(path: Path) -> dict[str, Array]:
    with open(path, encoding="utf-8-sig") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # NumPy's, of a table without rows
        header = [name.strip() for name in file.readline().split(",")]
        table = np.loadtxt(file, delimiter=",", ndmin=2)
    twice = [name for name, n in Counter(header).items() if n > 1]
    if twice:
        raise ValueError(f"it has two columns '{twice[0]}'")
    table = table if table.size else np.empty((0, len(header)))
    return dict(zip(header, table.T, strict=True))


def _whole(a: Array) -> Array:
    """A column of whole numbers as integers; beyond 2^53 reading has rounded them already."""
    exact = np.array_equal(a, np.rint(a)) and np.abs(a).max(initial=0) < 2.0**53
    return a.astype(np.int64) if exact else a


Reader = Callable[[Path, Mapping[str, TensorType]], dict[str, Array]]
READERS: dict[str, Reader] = {"npz": _read_npz, "csv": _read_csv}


def from_arrays(arrays: Mapping[str, Array]) -> Dataset:
    """A dataset of arrays in memory. Raises G0603, G0605."""
    for a in arrays.values():
        dtype_of(a.dtype)
    return Dataset(arrays)
