"""Functions that the printed code calls: each is printed once a module."""

from __future__ import annotations

from llvmlite import ir


def helper(module: ir.Module, t: ir.FunctionType, name: str) -> ir.Function:
    """A function for this module's use."""
    f = ir.Function(module, t, name)
    f.linkage = "internal"
    f.attributes.add("noinline")
    f.attributes.add("nounwind")
    return f
