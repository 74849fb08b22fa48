"""Kernels: what an op makes of its operands, by its own type rule, is what its buffer holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from graphc.ir.dims import parse_rule
from graphc.ir.op import Op
from graphc.ir.types import TensorType
from graphc.lowering.program.program import Buffer, Kernel, Program, Write, overwritable
from graphc.lowering.program.strides import MemoryLayout
from graphc.ops.source import DimSize
from graphc.plan.check.buffers import alike
from graphc.plan.check.conversions import conversion_problem
from graphc.support.errors import GraphcError


def kernels_are_typed(program: Program) -> Iterator[str]:
    """A result is of the type that its op makes of the operands, and a view lies in its base."""
    views: dict[int, MemoryLayout] = {}
    for x in program.instructions:
        match x:
            case Kernel(op=op, node=node) if problem := _problem(x, program, views):
                yield f"%{node} = {op.name}: {problem}"
            case Write(operand=operand, variable=variable):
                a, b = program.buffers[operand], program.buffers[variable]
                if not alike(a, b) or not set(a.home) <= set(b.home):
                    yield f"the new value of '{b.name}', buffer {operand}, is of another type"


def _problem(x: Kernel, program: Program, views: dict[int, MemoryLayout]) -> str | None:
    operands, result = [program.buffers[b] for b in x.operands], program.buffers[x.result]
    if any(not set(b.home) <= set(result.home) for b in operands):
        return "a device that computes the result lacks an operand"
    if x.op.source:
        return "this is not a kernel"
    try:
        if x.op.conversion:
            return conversion_problem(x, program)
        problem = _mistyped(x.op, operands, result) or _uncounted(x.op, program)
        if problem is None and result.kind == "view":
            return _misviewed(x, program, views)
        return problem or _overwrites(x, operands, result)
    except GraphcError as error:
        return error.message
    except Exception as error:  # an op's rule may fail in any way on what no compiler makes
        return f"it does not take these operands ({type(error).__name__}: {error})"


def _mistyped(op: Op, operands: Sequence[Buffer], result: Buffer) -> str | None:
    types = [TensorType(b.shape, b.dtype) for b in operands]
    inferred, shape = op.infer(*types), result.shape
    if op.positioned == -1 and inferred.shape != shape:
        shape = result.shape_global  # it makes its device's part of what it says
    if (inferred.shape, inferred.dtype) != (shape, result.dtype):
        return f"it computes {inferred}, but its buffer holds {TensorType(shape, result.dtype)}"
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


def _overwrites(x: Kernel, operands: Sequence[Buffer], result: Buffer) -> str | None:
    """Why the result can't lie where it does, if so: on an operand that is still read."""
    over = {b.id for b in operands if b.root == result.id}
    may = overwritable(x.op, x.operands) if x.op.in_place else ()
    in_place = over <= {result.id} and over <= set(may)
    return None if in_place else "its result overwrites an operand that it still reads"


def _misviewed(x: Kernel, program: Program, views: dict[int, MemoryLayout]) -> str | None:
    """Why the result is no view of its base, if so. views: those before it, in their bases."""
    result, wrong = program.buffers[x.result], "its view is not in the memory of its operand"
    if not x.op.view or len(x.operands) != 1:
        return wrong
    operand = program.buffers[x.operands[0]]
    base = program.buffers[operand.root]
    layout = x.op.layout(views.get(operand.id) or MemoryLayout.dense(operand.shape))
    if layout is None or base.id != result.base or layout.shape != result.shape:
        return wrong
    views[result.id] = layout
    low = min((layout.offset, *layout.strides))
    return None if low >= 0 and layout.reach <= prod(base.shape) else wrong
