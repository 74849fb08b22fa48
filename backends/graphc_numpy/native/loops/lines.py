"""Functions of lines as machine code: threads share the lines, or blocks of lines side by side."""

from __future__ import annotations

from types import ModuleType

from graphc_llvm.helpers import helper
from graphc_llvm.vectors import INT64, POINTER, VOID
from llvmlite import ir

from graphc.lowering.kernel.lines import LineKernel
from graphc_numpy.native.loops import running_sums, sorting, sorting_networks
from graphc_numpy.native.machine import host_printer


def units(kernel: LineKernel) -> int:
    """How many parts threads may share."""
    count: int = _printer(kernel).units(kernel)
    return count


def scratch_bytes(kernel: LineKernel) -> int:
    """What a thread needs beside the lines that it works on."""
    size: int = _printer(kernel).scratch_bytes(kernel)
    return size


def print_lines(module: ir.Module, kernel: LineKernel, name: str) -> ir.Function:
    """`void name(ptr source, ptr result, i64 begin, i64 end, ptr scratch, ptr errors)`."""
    kinds = [POINTER, POINTER, INT64, INT64, POINTER, POINTER]
    function = helper(module, ir.FunctionType(VOID, kinds), name)
    p = host_printer(ir.IRBuilder(function.append_basic_block("entry")))
    source, result, begin, end, scratch, _ = function.args
    _printer(kernel).print_units(p, kernel, (source, result), (begin, end), scratch)
    p.b.ret_void()
    return function


def _printer(kernel: LineKernel) -> ModuleType:
    """The module that prints it."""
    if kernel.function == "running sum":
        return running_sums
    return sorting_networks if sorting_networks.suits(kernel) else sorting
