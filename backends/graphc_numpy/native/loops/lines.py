"""Functions of lines as machine code: threads share the lines, or blocks of lines side by side."""

from __future__ import annotations

from llvmlite import ir

from graphc.lowering.kernel.lines import LineKernel
from graphc_numpy.native.llvm.vectors import INT64, POINTER, VOID, Printer
from graphc_numpy.native.loops import running_sums, sorting


def units(kernel: LineKernel) -> int:
    """How many parts threads may share."""
    return _of(kernel).units(kernel)


def scratch_bytes(kernel: LineKernel) -> int:
    """What a thread needs beside the line that it works on."""
    return 0 if kernel.function == "running sum" else sorting.scratch_bytes(kernel)


def print_lines(module: ir.Module, kernel: LineKernel, name: str) -> ir.Function:
    """`void name(ptr source, ptr result, i64 begin, i64 end, ptr scratch, ptr errors)`."""
    kinds = [POINTER, POINTER, INT64, INT64, POINTER, POINTER]
    function = ir.Function(module, ir.FunctionType(VOID, kinds), name)
    function.linkage = "internal"
    for attribute in ("noinline", "nounwind"):
        function.attributes.add(attribute)
    p = Printer(ir.IRBuilder(function.append_basic_block("entry")))
    source, result, begin, end, scratch, _ = function.args
    if kernel.function == "running sum":
        running_sums.RunningSums(p, kernel, source, result).run(begin, end)
    else:
        sorting.Sorting(p, kernel, source, result, scratch).run(begin, end)
    p.b.ret_void()
    return function


def _of(kernel: LineKernel) -> type[running_sums.RunningSums] | type[sorting.Sorting]:
    return running_sums.RunningSums if kernel.function == "running sum" else sorting.Sorting
