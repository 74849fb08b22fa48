"""Which products a library of the BLAS can make, such as cuBLAS, and how they are described to it.

It knows matrices that lie column by column: entry (i, j) at `i + j * leading`. It makes

    C[m, n] = op(A)[m, k] op(B)[k, n]        (op: as it lies, or transposed)

for a batch of matrices that lie a step apart each. A product fits if its inner axes are one axis,
and each matrix has neighbors in memory along one of its two axes, and no two entries in one place.
A result whose columns lie apart is made as its transpose. What is left of axes of rows and columns
that are not one is gone through as the batch is.

If the code on the sums is more than a store of them, the library writes the sums to memory, dense
in the order of the product's axes, and a nest goes on from there (`taken_apart`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from math import prod
from operator import mul

from graphc.ir.types import BF16, F16, F32, F64
from graphc.lowering.kernel.axes import OF_SUM, LoopAxis, axes_of, merged, sizes
from graphc.lowering.kernel.code import Access, Gemm, Load, Nest, Parameter, Phase, Store
from graphc.support.dataclass import dataclass

DTYPES = (F32, F64, F16, BF16)
LARGEST = (1 << 31) - 1  # of the sizes, which are 32-bit integers
_ONE = LoopAxis(1, (0, 0, 0))


@dataclass(frozen=True)
class BlasMatrix:
    """A matrix behind parameter `slot`, from element `offset` on.

    leading: from a column in memory to the next; step: from a matrix of the batch to the next;
    transposed: the product takes the transpose of what lies there column by column
    """

    slot: int
    offset: int
    leading: int
    step: int
    transposed: bool = False


@dataclass(frozen=True)
class BlasForm:
    """The arguments of a batched product, in elements.

    outer: (size, steps of a, b and c) of further axes: there is a call for each of their indices
    adds: the product is added to what lies in c (beta is 1, else 0)
    scratch: c is a dense array of the product's dtype, behind a parameter after all others
    """

    m: int
    n: int
    k: int
    batch: int
    a: BlasMatrix
    b: BlasMatrix
    c: BlasMatrix
    outer: tuple[tuple[int, tuple[int, ...]], ...] = ()
    adds: bool = False
    scratch: bool = False

    @property
    def calls(self) -> int:
        """How often the library is called."""
        return prod(size for size, _ in self.outer)


def blas_form(product: Gemm) -> BlasForm | None:
    """How the library makes a product; None if it can't, or if there is nothing to make."""
    left, right = (product.params[side.slot].dtype for side in (product.left, product.right))
    if left != right or left not in DTYPES or product.dtype not in (left, F32):
        return None
    if 0 in (*sizes(product), *product.inner):
        return None
    store = _only_store(product)
    bare = replace(product, code=(store or _to_scratch(product),))
    forms = (x.form(turned) for x in _planes(bare) for turned in (False, True))
    form = next((x for x in forms if x is not None), None)
    if form is None:
        return None
    return replace(form, adds=store is not None and store.add, scratch=store is None)


def taken_apart(product: Gemm) -> tuple[Gemm, Nest]:
    """A product that only stores its sums, dense, behind one more parameter; and a nest that loads
    them there and goes on with the code."""
    place = _to_scratch(product).access
    params = (*product.params, Parameter(product.dtype))
    after = Nest(params, sizes(product), (), (Phase(False, (Load(0, place), *product.code)),))
    written = (*product.params, Parameter(product.dtype, written=True))
    return replace(product, params=written, code=(_to_scratch(product),)), after


def _only_store(product: Gemm) -> Store | None:
    """The store of the sums, if there is nothing else."""
    match product.code:
        case (Store(access=Access(row=None, slot=slot), source=0, where=None) as store,):
            return store if product.params[slot].dtype == product.dtype else None
        case _:
            return None


def _to_scratch(product: Gemm) -> Store:
    """The store of the sums to a dense array behind all parameters."""
    steps = list(accumulate(reversed(sizes(product)), mul, initial=1))[-2::-1]
    return Store(Access(len(product.params), tuple(steps)), 0)


# -- which axes matrices have ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Planes:
    """A product as those of matrices: an axis of each kind. strides: of the left operand, the right
    one and the result. outer: axes that are left."""

    bare: Gemm
    rows: LoopAxis
    inner: LoopAxis
    cols: LoopAxis
    batch: LoopAxis
    outer: tuple[LoopAxis, ...]

    def form(self, turned: bool) -> BlasForm | None:
        """With the result as it is, or turned: then the right operand is the first one."""
        order = (1, 0, 2) if turned else (0, 1, 2)
        rows, cols = (self.cols, self.rows) if turned else (self.rows, self.cols)
        planes = (rows, self.inner), (self.inner, cols), (rows, cols)
        a, b, c = (self._matrix(k, *axes) for k, axes in zip(order, planes, strict=True))
        if a is None or b is None or c is None or c.transposed:
            return None
        if any(0 in x.strides[2:] for x in (self.batch, *self.outer) if x.size > 1):
            return None  # two sums in one place
        whole = (rows, cols, self.inner, self.batch)
        if max(*(x.size for x in whole), *(x.leading for x in (a, b, c))) > LARGEST:
            return None
        outer = tuple((x.size, tuple(x.strides[k] for k in order)) for x in self.outer)
        return BlasForm(rows.size, cols.size, self.inner.size, self.batch.size, a, b, c, outer)

    def _matrix(self, k: int, along: LoopAxis, across: LoopAxis) -> BlasMatrix | None:
        """Operand k, or the result (2), with the axes of its rows and of its columns."""
        (store,) = self.bare.code
        assert isinstance(store, Store)
        x = (self.bare.left, self.bare.right, store.access)[k]
        step = self.batch.strides[k]
        for one, other in ((along, across), (across, along)):
            leading = other.strides[k] if other.size > 1 else one.size
            if (one.strides[k] == 1 or one.size == 1) and leading >= one.size and step >= 0:
                return BlasMatrix(x.slot, x.offset, leading, step, one is across)
        return None


def _planes(bare: Gemm) -> Iterator[_Planes]:
    """Every way to choose the axes of matrices, the longest axes first."""
    axes = [replace(a, counted=False) for a in axes_of(bare) if a.size != 1]
    groups = {g: merged(a for a in axes if a.group == g) for g in ("batch", "rows", "cols", OF_SUM)}
    if len(groups[OF_SUM]) > 1:
        return
    inner = groups[OF_SUM][0] if groups[OF_SUM] else _ONE
    for rows, more in _chosen(groups["rows"]):
        for cols, others in _chosen(groups["cols"]):
            left = [replace(a, group="batch") for a in (*groups["batch"], *more, *others)]
            joined = merged(sorted(left, key=lambda a: -a.strides[2]))
            for batch, outer in _chosen(joined):
                yield _Planes(bare, rows, inner, cols, batch, tuple(outer))


def _chosen(axes: Sequence[LoopAxis]) -> Iterator[tuple[LoopAxis, list[LoopAxis]]]:
    """Each axis, the longest one first, with the others."""
    for axis in sorted(axes, key=lambda a: -a.size):
        yield axis, [a for a in axes if a is not axis]
    if not axes:
        yield _ONE, []


__all__ = ["BlasForm", "BlasMatrix", "blas_form", "taken_apart"]
