"""Products by cuBLAS: the few functions of its C interface that are needed.

They are called as they are, and not through cupy: cupy sets the stream of the handle before each
product, and with that the workspace falls back to cuBLAS's own (its documentation says so of
`cublasSetStream`). With a workspace of ours, a CUDA graph that was captured needs no other memory,
which is counted with the rest; and a product has the same bits each time, as one stream uses it.

Sums of f32, f16 and bf16 are made in f32, those of f64 in f64. Factors of f32 are multiplied as
they are, or rounded to TF32 first, if that was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ctypes import (
    POINTER,
    byref,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_longlong,
    c_size_t,
    c_void_p,
)
from dataclasses import field
from functools import cached_property
from itertools import product as indices
from typing import Any

from graphc.ir.types import BF16, F16, F32, F64, DType
from graphc.lowering.kernel.blas_form import BlasForm, BlasMatrix, blas_form
from graphc.lowering.kernel.code import Gemm
from graphc.support.dataclass import dataclass
from graphc.support.errors import InternalError

# The numbers of the enumerations in cublas_api.h and library_types.h.
KINDS = {F32: 0, F64: 1, F16: 2, BF16: 14}  # cudaDataType
COMPUTE_32F, COMPUTE_64F, COMPUTE_32F_FAST_TF32 = 68, 70, 77
AS_IT_LIES, TRANSPOSED = 0, 1
ALGORITHM = -1  # cuBLAS chooses
SUMS_IN_F32 = 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
# What NVIDIA recommends for Hopper and later GPUs, where the most is needed.
WORKSPACE = 32 << 20

_MATRIX = (c_void_p, c_int, c_int)  # where it lies, its kind, from a column to the next
_BATCHED = (*_MATRIX, c_longlong)  # and from a matrix to the next
_SIZES = (c_void_p, c_int, c_int, c_int, c_int, c_int, c_void_p)
# What the functions take; each returns a status.
PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cublasGetProperty": (c_int, POINTER(c_int)),
    "cublasCreate_v2": (POINTER(c_void_p),),
    "cublasDestroy_v2": (c_void_p,),
    "cublasSetMathMode": (c_void_p, c_int),
    "cublasSetStream_v2": (c_void_p, c_void_p),
    "cublasSetWorkspace_v2": (c_void_p, c_void_p, c_size_t),
    "cublasGemmEx": (*_SIZES, *_MATRIX, *_MATRIX, c_void_p, *_MATRIX, c_int, c_int),
    "cublasGemmStridedBatchedEx": (
        *_SIZES, *_BATCHED, *_BATCHED, c_void_p, *_BATCHED, c_int, c_int, c_int,
    ),
}  # fmt: skip


class Cublas:
    """cuBLAS on a GPU. library: its functions; tf32: whether factors of f32 are rounded to TF32"""

    def __init__(self, library: Any, tf32: bool = False) -> None:
        self.tf32 = tf32
        self._library = library
        self._at: tuple[int, int] | None = None  # the stream and the workspace
        for name, kinds in PROTOTYPES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = kinds, c_int
        library.cublasGetStatusString.argtypes = (c_int,)
        library.cublasGetStatusString.restype = c_char_p

    @property
    def version(self) -> str:
        """Such as '13.1'."""
        number, parts = c_int(), []
        for part in (0, 1):  # the major and the minor one
            self._do("cublasGetProperty", part, byref(number))
            parts.append(str(number.value))
        return ".".join(parts)

    @cached_property
    def _handle(self) -> c_void_p:
        handle = c_void_p()
        self._do("cublasCreate_v2", byref(handle))
        self._do("cublasSetMathMode", handle, SUMS_IN_F32)
        return handle

    def loaded(self, product: Gemm) -> LibraryProduct:
        """A product that is stored as it is. The handle is made here, before any capture."""
        form = blas_form(product)
        assert product.library and form is not None and not form.scratch and self._handle
        return LibraryProduct(self, product, form)

    def use(self, stream: int, workspace: int) -> None:
        """Give what follows to a stream. workspace: the address of WORKSPACE bytes of the GPU"""
        if self._at != (stream, workspace):
            self._at = None
            self._do("cublasSetStream_v2", self._handle, stream)
            self._do("cublasSetWorkspace_v2", self._handle, workspace, WORKSPACE)
            self._at = stream, workspace

    def compute(self, dtype: DType) -> int:
        """How factors of a dtype are multiplied and added."""
        if dtype == F64:
            return COMPUTE_64F
        return COMPUTE_32F_FAST_TF32 if dtype == F32 and self.tf32 else COMPUTE_32F

    def multiply(self, form: BlasForm, places: Sequence[int], kinds: Sequence[DType]) -> None:
        """C = A B, or C += A B. places: the addresses of A, B and C; kinds: their dtypes"""
        number = c_double if kinds[0] == F64 else c_float
        one, beta = number(1), number(int(form.adds))
        a, b, c = (
            (place, KINDS[kind], x.leading, x.step)
            for x, place, kind in zip((form.a, form.b, form.c), places, kinds, strict=True)
        )
        sizes = (
            self._handle, _operation(form.a), _operation(form.b), form.m, form.n, form.k,
            byref(one),
        )  # fmt: skip
        how = self.compute(kinds[0]), ALGORITHM
        if form.batch == 1:
            self._do("cublasGemmEx", *sizes, *a[:3], *b[:3], byref(beta), *c[:3], *how)
        else:
            name = "cublasGemmStridedBatchedEx"
            self._do(name, *sizes, *a, *b, byref(beta), *c, form.batch, *how)

    def _do(self, name: str, *arguments: Any) -> None:
        """Call a function. Raises G0999 for any status but success."""
        status = getattr(self._library, name)(*arguments)
        if status:
            text = self._library.cublasGetStatusString(status).decode()
            raise InternalError("G0999", f"{name}: {text}")

    def __del__(self) -> None:
        if handle := self.__dict__.get("_handle"):
            self._library.cublasDestroy_v2(handle)


def _operation(x: BlasMatrix) -> int:
    return TRANSPOSED if x.transposed else AS_IT_LIES


@dataclass(frozen=True)
class LibraryProduct:
    """A product that cuBLAS makes. See `LoadedKernel`: it is launched as one is."""

    library: Cublas
    product: Gemm
    form: BlasForm
    blocks: int = field(default=1, init=False)
    own: int = field(default=WORKSPACE, init=False)

    def launch(
        self, params: Sequence[int], own: int, errors: int, failed: int, stream: Any
    ) -> None:
        """Give it to a stream. It runs whether the step has failed or not, so it writes no
        variable (`graphc.lowering.library`)."""
        self.library.use(stream.ptr, own)
        for places in self._places(params):
            self.library.multiply(self.form, places, self._kinds)

    @property
    def _kinds(self) -> list[DType]:
        return [self.product.params[x.slot].dtype for x in self._matrices]

    @property
    def _matrices(self) -> tuple[BlasMatrix, ...]:
        return self.form.a, self.form.b, self.form.c

    def _places(self, params: Sequence[int]) -> Iterator[list[int]]:
        """The addresses of A, B and C, for each index of the outer axes."""
        sizes = [range(size) for size, _ in self.form.outer]
        for at in indices(*sizes):
            far = [
                sum(i * steps[k] for i, (_, steps) in zip(at, self.form.outer, strict=True))
                for k in range(3)
            ]
            yield [
                params[x.slot] + (x.offset + n) * kind.bytes
                for x, n, kind in zip(self._matrices, far, self._kinds, strict=True)
            ]


__all__ = ["PROTOTYPES", "WORKSPACE", "Cublas", "LibraryProduct"]
