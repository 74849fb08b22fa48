"""Shapes of the entries of a data file, from its header: what binds the named dims of a program.

Only a hint: a file that is missing or damaged has no shapes here, and its error when it is read.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from graphc.frontend.module import DataSpec
from graphc.support.array_files import csv_header, npz_shapes
from graphc.support.untrusted_files import Unreadable, files_of

Shapes = dict[str, tuple[int, ...]]


def entry_shapes(spec: DataSpec) -> Shapes:
    """The shapes by entry; {} where the file can't be read. The first dim is the examples'."""
    readers = {"npz": npz_shapes, "csv": _csv}
    try:
        return readers[spec.kind](files_of(spec.path)[0])
    except (Unreadable, FileNotFoundError):
        return {}


def _csv(path: Path) -> Shapes:
    """A column is [n]; the columns `x.0`, `x.1`, ... are one entry [n, columns]. n is not known."""
    plain = csv_header(path)
    numbered = Counter(m[1] for name in plain if (m := re.fullmatch(r"(.+)\.\d+", name)))
    return dict.fromkeys(plain, (-1,)) | {k: (-1, n) for k, n in numbered.items()}
