"""Values: what operations of a builder take and return."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphc.ir.graph import Node
from graphc.ir.types import DType, TensorType

if TYPE_CHECKING:
    from graphc.ir.builder import Builder

Scalar = bool | int | float


class InGraph:
    """What stands for a value of the graph that is being built: a `Value`, or a traced array."""

    __slots__ = ()


class Value(InGraph):
    """A node under construction: typed, with NumPy's operators, broadcasting and promotion."""

    __slots__ = ("builder", "name")

    def __init__(self, builder: Builder, name: str) -> None:
        self.builder, self.name = builder, name

    @property
    def node(self) -> Node:
        return self.builder.nodes[self.name]

    @property
    def type(self) -> TensorType:
        return self.node.type

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def rank(self) -> int:
        return len(self.type.shape)

    def __repr__(self) -> str:
        return f"%{self.name} : {self.node.type}"

    def __add__(self, other: Operand) -> Value:
        return self.builder.binary("add", self, other)

    def __radd__(self, other: Operand) -> Value:
        return self.builder.binary("add", other, self)

    def __sub__(self, other: Operand) -> Value:
        return self.builder.binary("sub", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self.builder.binary("sub", other, self)

    def __mul__(self, other: Operand) -> Value:
        return self.builder.binary("mul", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self.builder.binary("mul", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return self.builder.binary("div", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self.builder.binary("div", other, self)

    def __floordiv__(self, other: Operand) -> Value:
        return self.builder.binary("floor_div", self, other)

    def __rfloordiv__(self, other: Operand) -> Value:
        return self.builder.binary("floor_div", other, self)

    def __mod__(self, other: Operand) -> Value:
        return self.builder.binary("mod", self, other)

    def __rmod__(self, other: Operand) -> Value:
        return self.builder.binary("mod", other, self)

    def __pow__(self, other: Operand) -> Value:
        return self.builder.power(self, other)

    def __rpow__(self, other: Operand) -> Value:
        return self.builder.power(other, self)

    def __neg__(self) -> Value:
        return self.builder.neg(self)


Operand = Value | Scalar
