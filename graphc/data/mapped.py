"""Arrays in .npy files, which are mapped into memory and never read whole."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, final

import numpy as np

from graphc.data.entries import Array, Entries, Index, check_dtype, same_length
from graphc.data.files import explained, state_of
from graphc.data.source import DataSource
from graphc.support.array_files import npy_header
from graphc.support.errors import GraphcError

REMAPPED = 8 << 20  # bytes read of a mapping, after which it is made anew
FAULT = 1 << 16  # bytes that Linux maps at a time, around the one that is read


@final
class _Mapped:
    """An array in a file.

    What is read of a mapping counts as memory of the process until the mapping ends; so it is made
    anew from time to time.
    """

    def __init__(self, name: str, path: Path) -> None:
        with explained(path):
            header = npy_header(path)
            self._state = state_of(path)
        if not header.shape:
            text = f"{path} is one number, not one for each example"
            raise GraphcError("G0603", text)
        check_dtype(name, header.dtype, str(path))
        self._path, self._header, self._read = path, header, 0
        self._map = self._mapping()

    def __len__(self) -> int:
        return self._header.shape[0]

    def _mapping(self) -> Array:
        shape, dtype, start, order = self._header
        self._state.check()
        if not prod(shape):
            return np.empty(shape, dtype)
        return np.memmap(self._path, dtype, "r", start, shape, order)

    def rows(self, index: slice | Index) -> Array:
        """Some rows, copied, in the byte order of the machine."""
        mapping = self._map
        rows: Array = np.array(mapping[index], mapping.dtype.newbyteorder("="), order="C")
        pages = len(rows) * max(rows.itemsize * prod(rows.shape[1:]), FAULT)
        self._read += rows.nbytes if isinstance(index, slice) else pages
        if self._read > REMAPPED:
            self._read = 0
            self._map = self._mapping()
        return rows


class _MappedFiles(DataSource):
    """Entries, each in a file of its own."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self.names = tuple(files)
        self._arrays = {name: _Mapped(name, path) for name, path in files.items()}
        self._n = same_length(
            {name: len(a) for name, a in self._arrays.items()}, ", ".join(map(str, files.values()))
        )

    def __len__(self) -> int:
        return self._n

    def rows(self, index: slice | Index) -> Entries:
        return {name: a.rows(index) for name, a in self._arrays.items()}


def npy(files: Mapping[str, str | Path]) -> DataSource:
    """A source of arrays in .npy files, each with a row for each example: `{"x": "x.npy"}`.

    Only what a batch needs is read. Raises G0602 for files that can't be read, G0603 if they differ
    in their number of examples, G0605 for what is no number.
    """
    if not isinstance(files, Mapping):
        given: Any = files
        text = f"npy takes a dict of files by entry, not a {type(given).__name__}"
        raise GraphcError("G0603", text, help='graphc.data.npy({"x": "x.npy", "y": "y.npy"})')
    return _MappedFiles({str(name): Path(path) for name, path in files.items()})
