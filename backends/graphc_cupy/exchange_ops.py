"""The steps that plans of exchanges are made of."""

from __future__ import annotations

from typing import TypeAlias

from graphc.support.dataclass import dataclass
from graphc_cupy.summing import MadeKernel


@dataclass(frozen=True, slots=True)
class CopyOp:
    """`rows` times `width` bytes on a GPU, so many bytes apart where they go and where they lie."""

    gpu: int
    to: int
    to_pitch: int
    start: int
    start_pitch: int
    width: int
    rows: int


@dataclass(frozen=True, slots=True)
class ZeroOp:
    gpu: int
    at: int
    size: int


@dataclass(frozen=True, slots=True)
class KernelOp:
    gpu: int
    kernel: MadeKernel
    arguments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NcclOp:
    """A method of cupy's communicator, with its arguments but for the stream; words are names of
    constants."""

    gpu: int
    method: str
    arguments: tuple[int | str, ...]


LocalOp: TypeAlias = CopyOp | ZeroOp | KernelOp
