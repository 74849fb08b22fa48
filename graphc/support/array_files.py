"""Arrays from .npz and .csv files. The files are not trusted, and nothing is unpickled."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable
from io import TextIOWrapper
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from zipfile import ZipExtFile, ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy

from graphc.support.untrusted_files import Unreadable, opened, reading

if TYPE_CHECKING:
    from graphc.ir.op import Array

MAX_HEADER = 1 << 20  # characters of a first line
NAME = re.compile(r"[A-Za-z_][\w.]{0,40}")

# -- npz ------------------------------------------------------------------------------------------


def npz_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays of an .npz by name, from their headers."""
    with reading(), opened(path) as raw, _archive(raw) as file:
        shapes = {}
        for name, info in _members(file).items():
            with file.open(info) as member:
                shapes[name] = _header(member, info)[0]
        return shapes


def npz_arrays(path: Path, names: Iterable[str]) -> tuple[dict[str, Array], list[str]]:
    """The requested arrays of an .npz, as far as it has them, and the names of all that it has."""
    with reading(), opened(path) as raw, _archive(raw) as file:
        members = _members(file)
        wanted = {name: members[name] for name in names if name in members}
        return {name: _array(file, info) for name, info in wanted.items()}, list(members)


def _archive(raw: IO[bytes]) -> ZipFile:
    start = raw.read(len(npy.MAGIC_PREFIX))
    raw.seek(0)
    if start == npy.MAGIC_PREFIX:
        raise Unreadable("it is a single array (.npy), not an .npz with named arrays")
    return ZipFile(raw)


def _members(file: ZipFile) -> dict[str, ZipInfo]:
    members: dict[str, ZipInfo] = {}
    for info in file.infolist():
        name = info.filename.removesuffix(".npy")
        if name in members:
            raise Unreadable(f"it has two arrays of the same name, {name[:40]!r}")
        if name != info.filename:
            members[name] = info
    return members


def _array(file: ZipFile, info: ZipInfo) -> Array:
    """One array. Its size is compared with the file's before memory is taken for it."""
    with file.open(info) as member:
        shape, dtype, start = _header(member, info)
    if dtype.hasobject:
        raise Unreadable(f"{info.filename[:40]} holds Python objects, which are never read")
    told, there = prod(shape) * dtype.itemsize, info.file_size - start
    if told != there or min(shape, default=0) < 0:
        raise Unreadable(f"{info.filename[:40]} declares {told:,} bytes, but has {there:,}")
    with file.open(info) as member:
        return np.asarray(npy.read_array(member, allow_pickle=False))


def _header(member: IO[bytes] | ZipExtFile, info: ZipInfo) -> tuple[tuple[int, ...], Any, int]:
    """(shape, dtype, where the numbers begin). Raises Unreadable."""
    try:
        version = npy.read_magic(member)
        read: Any = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(member)
    except (ValueError, SyntaxError, TypeError, RecursionError):  # NumPy's repeat the header
        raise Unreadable(f"{info.filename[:40]} has no array header") from None
    return tuple(map(int, shape)), dtype, member.tell()


# -- csv ------------------------------------------------------------------------------------------


def csv_header(path: Path) -> list[str]:
    """The names in the first line."""
    with reading(), opened(path) as raw, TextIOWrapper(raw, "utf-8-sig") as text:
        return _names(text)


def csv_columns(path: Path) -> dict[str, Array]:
    """The columns of numbers by the names in the first line."""
    with reading(), opened(path) as raw, TextIOWrapper(raw, "utf-8-sig") as text:
        header = _names(text)
        table = _table(text)
    table = table if table.size else np.empty((0, len(header)))
    if table.shape[1] != len(header):
        raise Unreadable(f"the first line has {len(header)} names, the others {table.shape[1]}")
    twice = [name for name, n in Counter(header).items() if n > 1]
    if twice:
        of_name = f" '{twice[0]}'" if shown_names(header, len(table)) else " of one name"
        raise Unreadable(f"it has two columns{of_name}")
    return dict(zip(header, table.T, strict=True))


def csv_rows(path: Path) -> int:
    """How many rows of numbers there are."""
    with reading(), opened(path) as raw, TextIOWrapper(raw, "utf-8-sig") as text:
        _names(text)
        return sum(1 for line in text if line.partition("#")[0].strip())


def _table(text: TextIOWrapper) -> Array:
    """The numbers below the first line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # NumPy's, of a table without rows
        try:
            return np.asarray(np.loadtxt(text, delimiter=",", ndmin=2))
        except ValueError as error:
            raise Unreadable(_of_table(error)) from None


def shown_names(header: Iterable[str], rows: int) -> list[str]:
    """The names of columns, for a message. Empty unless the file is a table of names and
    numbers: the first line of any other file must not be shown."""
    names = list(header)
    return names if rows and all(NAME.fullmatch(name) for name in names) else []


def _names(file: TextIOWrapper) -> list[str]:
    line = file.readline(MAX_HEADER)
    if len(line) == MAX_HEADER:
        raise Unreadable(f"its first line has more than {MAX_HEADER:,} characters")
    return [name.strip() for name in line.split(",")]


def _of_table(error: ValueError) -> str:
    """What NumPy says of a malformed table, without the words of the file that it quotes."""
    row = re.search(r"at row (\d+)", str(error))
    column = re.search(r"column (\d+)", str(error))
    if isinstance(error, UnicodeError):
        return "it is not UTF-8 text"
    if row and column:
        return f"row {int(row[1]) + 1} below the header has no number in column {column[1]}"
    if row:
        return f"row {row[1]} below the header does not have as many columns as the first"
    return "it is not a table of numbers"
