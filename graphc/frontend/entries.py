"""Shapes of the entries of a data file, from its header: what binds the named dims of a program.

Only a hint: a file that is missing or damaged has no shapes here, and its error when it is read.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from zipfile import BadZipFile, ZipFile

from graphc.module import DataSpec

if TYPE_CHECKING:
    from typing import IO

Shapes = dict[str, tuple[int, ...]]
MAX_HEADER = 1 << 20  # bytes of a first line


def entry_shapes(spec: DataSpec) -> Shapes:
    """The shapes by entry; {} where the file can't be read. The first dim is the examples'."""
    readers = {"npz": _npz, "csv": _csv}
    several = [] if Path(spec.path).exists() else sorted(glob(spec.path, recursive=True))
    try:
        return readers[spec.kind](Path(several[0] if several else spec.path))
    except (OSError, ValueError, KeyError, BadZipFile, EOFError):
        return {}


def _npz(path: Path) -> Shapes:
    with ZipFile(path) as file:
        names = [n for n in file.namelist() if n.endswith(".npy")]
        return {name.removesuffix(".npy"): _npy(file.open(name)) for name in names}


def _npy(file: IO[bytes]) -> tuple[int, ...]:
    from numpy.lib import format as npy

    with file:
        version = npy.read_magic(file)
        read: Any = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        return cast(tuple[int, ...], read(file)[0])


def _csv(path: Path) -> Shapes:
    """A column is [n]; the columns `x.0`, `x.1`, ... are one entry [n, columns]. n is not known."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        names = next(csv.reader([file.readline(MAX_HEADER)]), [])
    plain = [name.strip() for name in names]
    numbered = Counter(m[1] for name in plain if (m := re.fullmatch(r"(.+)\.\d+", name)))
    return dict.fromkeys(plain, (-1,)) | {k: (-1, n) for k, n in numbered.items()}
