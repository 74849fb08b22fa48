"""NVIDIA's libraries, wherever they are installed: with CUDA, or as packages of Python."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec


@lru_cache
def library(name: str) -> ctypes.CDLL | None:
    """A library by NVIDIA's name, such as 'cublas'; None if it is not there.

    The package `cuda-pathfinder` comes with cupy, and finds the library that belongs to the CUDA
    that cupy uses.
    """
    try:
        if find_spec("cuda.pathfinder") is None:
            return None
    except ModuleNotFoundError:  # there is no package `cuda`
        return None
    pathfinder = import_module("cuda.pathfinder")
    try:
        return ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib(name).abs_path)
    except (RuntimeError, OSError):  # what pathfinder raises is a RuntimeError
        return None
