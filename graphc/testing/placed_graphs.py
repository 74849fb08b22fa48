"""Small graphs whose placements are written by hand: one conversion at a time, on any mesh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from graphc.ir.builder import Builder, Value, infer_type
from graphc.ir.graph import Graph, Variable
from graphc.ir.op import Op
from graphc.ir.placement import Mesh, Placement, State, place
from graphc.ir.types import F64, DType, Extent, TensorType
from graphc.ops.collective import Conversion, Mask
from graphc.ops.source import Input, ReadVariable
from graphc.support.dataclass import dataclass


@dataclass
class PlacedGraph:
    """Builds a graph with given placements: `states` are axis=state pairs."""

    mesh: Mesh
    name: str = "placed"
    f: Builder = field(init=False)

    def __post_init__(self) -> None:
        self.f = Builder(self.name, self.mesh)

    def _placement(self, states: dict[str, State]) -> Placement:
        return place(self.mesh, states.items())

    def input(
        self, name: str, shape: tuple[int, ...], dtype: DType = F64, extent: str = "",
        **states: State,
    ) -> Value:  # fmt: skip
        """An entry of the batch; extent names its first dim."""
        extents = (Extent(extent), *[None] * (len(shape) - 1)) if extent else ()
        t = TensorType(shape, dtype, extents, self._placement(states))
        return self.f.add(Input(name), type=t, name=name)

    def variable(
        self, name: str, shape: tuple[int, ...], dtype: DType = F64, **states: State
    ) -> Value:
        t = TensorType(shape, dtype, (), self._placement(states))
        self.f.variables[name] = Variable(name, t, "state")
        return self.f.add(ReadVariable(name), type=t, name=name)

    def node(self, op: Op, operands: Sequence[Value], **states: State) -> Value:
        """A node whose result has the placement that `states` says."""
        bare = [x.type.bare() for x in operands]
        t = infer_type(op, bare).placed(self._placement(states))
        return self.f.add(op, operands, type=t)

    def convert(self, x: Value, op: Conversion) -> Value:
        """x in the placement that the conversion gives it."""
        after = dict(x.type.placement) | {a: op.target(a) for a in op.axes}
        return self.f.add(op, [x], type=x.type.placed(self._placement(after)))

    def mask(self, x: Value, dim: int, fill: float) -> Value:
        return self.f.add(Mask(dim, fill), [x], type=x.type)

    def output(self, name: str, x: Value) -> None:
        self.f.outputs[name] = x.name

    def update(self, variable: str, x: Value) -> None:
        self.f.updates[variable] = x.name

    def build(self) -> Graph:
        return self.f.build()
