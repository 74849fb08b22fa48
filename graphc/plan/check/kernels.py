"""Kernels: what an op makes of its operands, by its own type rule, is what its buffer holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphc.ir.dims import parse_rule
from graphc.ir.op import Op
from graphc.ir.types import TensorType
from graphc.lowering.program.lifetimes import overwritable
from graphc.lowering.program.program import Buffer, Kernel, Program, Write
from graphc.ops.source import DimSize
from graphc.plan.check.buffers import alike, layout_of
from graphc.plan.check.conversions import conversion_problem
from graphc.support.errors import GraphcError


def kernels_are_typed(program: Program) -> Iterator[str]:
    """A result is of the type that its op makes of the operands, and a view lies where it says."""
    for x in program.instructions:
        match x:
            case Kernel(op=op, node=node) if (problem := _problem(x, program)) is not None:
                yield f"%{node} = {op.name}: {problem}"
            case Write(operand=operand, variable=variable):
                a, b = program.buffers[operand], program.buffers[variable]
                if not alike(a, b) or not set(a.home) <= set(b.home):
                    yield f"the new value of '{b.name}', buffer {operand}, is of another type"


def _problem(x: Kernel, program: Program) -> str | None:
    operands, result = [program.buffers[b] for b in x.operands], program.buffers[x.result]
    if any(not set(b.home) <= set(result.home) for b in operands):
        return "a device that computes the result lacks an operand"
    if x.op.conversion:
        return conversion_problem(x, program)
    if x.op.source:
        return "this is not a kernel"
    try:
        problem = _mistyped(x.op, operands, result) or _uncounted(x.op, program)
        return problem or _mislaid(x, operands, result)
    except GraphcError as error:
        return error.message
    except Exception as error:  # an op's rule may fail in any way on what no compiler makes
        return f"it does not take these operands ({type(error).__name__}: {error})"


def _mistyped(op: Op, operands: Sequence[Buffer], result: Buffer) -> str | None:
    types = [TensorType(b.shape, b.dtype) for b in operands]
    made, shape = op.infer(*types), result.shape
    if op.positioned == -1 and made.shape != shape:
        shape = result.shape_global  # it makes its place's part of what it says
    if (made.shape, made.dtype) != (shape, result.dtype):
        return f"it computes {made}, but its buffer holds {TensorType(shape, result.dtype)}"
    takes = len(parse_rule(op.dims(*types)).operands)
    return None if takes == len(types) else f"it takes {takes} operands, not {len(types)}"


def _uncounted(op: Op, program: Program) -> str | None:
    """Why an op can't count what it says, if so."""
    if not isinstance(op, DimSize) or op.extent is None:
        return None
    extent, units = op.extent, program.counts.get(op.extent.name)
    if extent.unit < 1 or op.size % extent.unit or units not in (None, op.size // extent.unit):
        return f"it counts '{extent}', of which the program has not {op.size}"
    return None


def _mislaid(x: Kernel, operands: Sequence[Buffer], result: Buffer) -> str | None:
    """Why the result can't lie where it does, if so: in its operand's memory, or in its own."""
    if result.kind != "view":
        over = {b.id for b in operands if b.root == result.id}
        may = overwritable(x.op, x.operands) if x.op.in_place else ()
        in_place = over <= {result.id} and over <= set(may)
        return None if in_place else "its result overwrites an operand that it still reads"
    layout = x.op.layout(layout_of(operands[0])) if x.op.view and len(operands) == 1 else None
    if layout != layout_of(result) or operands[0].root != result.base:
        return "its view is not in the memory of its operand"
    return None
