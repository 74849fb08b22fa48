"""Ops on tuples and sparse rows: values with more than one part are taken apart by projections."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from graphc.op import Op, register, require, tensor_types
from graphc.types import SparseType, TensorType, TupleType, Type

if TYPE_CHECKING:
    from graphc.op import Array


class Structural(Op):
    """An op whose operand or result is a tuple or sparse. It is placed replicated."""

    not_differentiable = "gradients are taken of tensors, before sparse rows are made"

    @abstractmethod
    def infer_structure(self, types: Sequence[Type]) -> Type:
        """The result type. Raises G0202, G0203."""

    def infer(self, *types: TensorType) -> TensorType:
        raise AssertionError(f"{self.name} is typed by infer_structure")

    def dims(self, *types: TensorType) -> str:
        raise AssertionError(f"{self.name} has no dims rule: it is placed replicated")

    @classmethod
    def samples(cls) -> Sequence[tuple[Op, str]]:
        return []


@register
class Tuple(Structural):
    """`y = (x0, x1, ...)`"""

    def infer_structure(self, types: Sequence[Type]) -> Type:
        return TupleType(tensor_types(types))

    def run(self, *xs: Array) -> Array:
        return xs  # type: ignore[return-value]


@register
class Get(Structural):
    """`y = t[index]`, a part of a tuple"""

    index: int

    def infer_structure(self, types: Sequence[Type]) -> Type:
        (t,) = types
        require(isinstance(t, TupleType), f"get takes a tuple, not {t}", code="G0202")
        assert isinstance(t, TupleType)
        require(0 <= self.index < len(t.items), f"get: no part {self.index} in {t}", code="G0206")
        return t.items[self.index]

    def run(self, *xs: Array) -> Array:
        return xs[0][self.index]  # type: ignore[no-any-return]


@register
class SparseRows(Structural):
    """`y` is `values` at the rows `indices` of a table of `size` rows; equal indices add up"""

    size: int

    def infer_structure(self, types: Sequence[Type]) -> Type:
        indices, values = tensor_types(types)
        good = indices.rank == 1 and values.shape[:1] == indices.shape
        require(good, f"sparse_rows: indices {indices.shape} and values {values.shape}")
        dense = TensorType((self.size, *values.shape[1:]), values.dtype)
        return SparseType(dense, indices.shape[0], indices.dtype)

    def run(self, *xs: Array) -> Array:
        return xs  # type: ignore[return-value]


@register
class SparsePart(Structural):
    """`y` is the 'indices' or the 'values' of sparse rows"""

    part: str

    def infer_structure(self, types: Sequence[Type]) -> Type:
        (t,) = types
        require(isinstance(t, SparseType), f"sparse_part takes sparse rows, not {t}", code="G0202")
        require(self.part in ("indices", "values"), f"no part '{self.part}'", code="G0206")
        assert isinstance(t, SparseType)
        if self.part == "indices":
            return TensorType((t.rows,), t.index_dtype)
        return TensorType((t.rows, *t.dense.shape[1:]), t.dense.dtype)

    def run(self, *xs: Array) -> Array:
        return xs[0][0 if self.part == "indices" else 1]  # type: ignore[no-any-return]


@register
class ToDense(Structural):
    """`y` is the whole table that sparse rows stand for"""

    size: int

    def infer_structure(self, types: Sequence[Type]) -> Type:
        (t,) = types
        require(isinstance(t, SparseType), f"to_dense takes sparse rows, not {t}", code="G0202")
        assert isinstance(t, SparseType)
        return t.dense

    def run(self, *xs: Array) -> Array:
        indices, values = xs[0]
        y = np.zeros((self.size, *values.shape[1:]), values.dtype)
        np.add.at(y, indices, values)
        return y
