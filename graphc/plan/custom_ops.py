"""Which functions of the program's own a plan calls."""

from __future__ import annotations

from graphc.lowering.program.instructions import Kernel
from graphc.ops.custom_op import function_named
from graphc.plan.plan import Plan
from graphc.support.errors import GraphcError
from graphc.support.lazy_map import existing


def check_custom_ops(plan: Plan) -> None:
    """Raise G0513 if a function that a custom op of the plan calls is not registered here."""
    seen: set[str] = set()
    for program in existing(plan.programs).values():
        for instruction in program.instructions:
            if isinstance(instruction, Kernel) and (path := instruction.op.calls) not in seen:
                seen.add(path)
                _check(path, instruction)


def _check(path: str, kernel: Kernel) -> None:
    if path:
        try:
            function_named(path)
        except GraphcError as error:
            raise error.at(kernel.origin) from None
