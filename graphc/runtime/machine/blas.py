"""The threads of NumPy's BLAS: virtual devices share the cores, so each gets its share.

OpenBLAS sets the number of threads for the whole process, by a function of its C interface
(https://www.openmathlib.org/OpenBLAS/docs/extensions/). With another BLAS, nothing is done.
"""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from pathlib import Path

import numpy as np

_PREFIXES = ("scipy_openblas", "openblas")
_SUFFIXES = ("64_", "")


@lru_cache(maxsize=1)
def _library() -> tuple[ctypes.CDLL, str, str] | None:
    """The library with the prefix and suffix of its names, or None."""
    folder = Path(np.__file__).parent
    for path in [*folder.parent.glob("numpy.libs/*openblas*"), *folder.glob(".dylibs/*openblas*")]:
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        for prefix in _PREFIXES:
            for suffix in _SUFFIXES:
                try:
                    getattr(library, f"{prefix}_set_num_threads{suffix}")
                    return library, prefix, suffix
                except AttributeError:
                    continue
    return None


def blas_threads() -> int | None:
    """How many threads a product may use, or None if that is unknown."""
    blas = _library()
    if blas is None:
        return None
    library, prefix, suffix = blas
    return int(getattr(library, f"{prefix}_get_num_threads{suffix}")())


def blas_core() -> str | None:
    """The processor core whose kernels the BLAS chose, or None if that is unknown."""
    blas = _library()
    if blas is None:
        return None
    library, prefix, suffix = blas
    try:
        name = getattr(library, f"{prefix}_get_corename{suffix}")
    except AttributeError:
        return None
    name.restype = ctypes.c_char_p
    return str(name().decode())


def limit_blas(devices: int, single: bool = False) -> int | None:
    """Give each of `devices` its share of the cores. Returns the number that was set before.

    single: one thread each in any case, as another number may add in another order.
    """
    before = blas_threads()
    if before is not None and (single or devices > 1):
        part = 1 if single else max(1, min(before, (os.cpu_count() or 1) // devices))
        set_blas_threads(part)
    return before


def set_blas_threads(n: int | None) -> None:
    """Let products use n threads; None changes nothing."""
    blas = _library()
    if blas is not None and n is not None:
        library, prefix, suffix = blas
        getattr(library, f"{prefix}_set_num_threads{suffix}")(n)
