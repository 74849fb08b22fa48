"""Prints a program as text, one instruction per line; equal programs give equal texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from graphc.ir.op import Op
from graphc.ir.types import DType
from graphc.lowering.memory.memory_plan import MemoryPlan, plan_memory
from graphc.lowering.program.program import (
    Buffer,
    Feed,
    Instruction,
    Kernel,
    Loop,
    Program,
    Start,
    Wait,
    Write,
)


def print_program(program: Program) -> str:
    """The program as text: its inputs and outputs, then every part with its instructions.

    It says where each buffer lies if the instructions are run one by one.
    """
    return "\n".join(_lines(program)) + "\n"


def _lines(program: Program) -> Iterator[str]:
    yield f"program {program.name} on {program.mesh}"
    plan = plan_memory(program)
    each = plan.footprints
    for f in each:
        of = f" of {f.devices} devices" if len(each) > 1 else ""
        parts = f"arena {f.arena}, constants {f.constants}, variables {f.variables}"
        kept = f"; {program.kept_bytes} kept from loop to loop" if program.kept_bytes else ""
        yield f"  memory{of} {f.peak} bytes: {parts}{kept}"
    sent = program.sent_by_link
    if len(sent) > 1:
        yield f"  sends {', '.join(f'{round(n)} bytes over {link}' for link, n in sent.items())}"
    for name, t in program.inputs.items():
        yield f"  input {name} : {t}"
    for name, b in program.variables.items():
        yield f"  variable {name} : {program.variable_types[name]} in {_name(program, b)}"
    yield from _part(plan, "setup", program.setup)
    *body, commit = program.parts
    for i, part in enumerate(body):
        yield from _part(plan, title(program, i), part)
    yield from _part(plan, "commit", commit)
    for name, b in program.outputs.items():
        yield f"  output {name} = {_name(program, b)}"


def title(program: Program, part: int) -> str:
    """What a part of the body is called."""
    if part % 2:
        return f"loop {program.loops[part // 2].turns} times"
    last = 2 * len(program.loops)
    return "prologue" if part == 0 else "epilogue" if part == last else "between"


def _part(plan: MemoryPlan, title: str, part: Iterable[Instruction]) -> Iterator[str]:
    lines = [f"    {print_instruction(plan.program, x, partial(_where, plan))}" for x in part]
    if lines:
        yield f"  {title}"
        yield from lines


def print_instruction(program: Program, x: Instruction, where: Callable[[Buffer], str]) -> str:
    """One instruction, with the buffers that it reads and makes.

    where: says where a buffer lies
    """
    name, declared = partial(_name, program), partial(_made, program, where)
    match x:
        case Feed(source=source, result=y):
            return f"{declared(y)} = feed {source}"
        case Kernel(op=op, operands=operands, result=y):
            return f"{declared(y)} = {_op(op)} {', '.join(map(name, operands))}".rstrip()
        case Start(op=op, operand=operand, result=y, token=token):
            return f"{declared(y)} = start#{token} {_op(op)} {name(operand)}"
        case Wait(token=token):
            return f"wait#{token}"
        case Write(operand=operand, variable=variable):
            return f"{name(variable)} := {name(operand)}"
        case Loop():
            return "loop"


def _name(program: Program, b: int) -> str:
    return f"%{program.buffers[b].name}"


def _made(program: Program, where: Callable[[Buffer], str], b: int) -> str:
    buffer = program.buffers[b]
    shape = ",".join(map(str, buffer.shape))
    at = "".join(f" on {axis}={index}" for axis, index in buffer.home)
    return f"%{buffer.name} : {buffer.dtype}[{shape}] {where(buffer)}{at}"


def _where(plan: MemoryPlan, buffer: Buffer) -> str:
    match buffer.kind:
        case "arena":
            return f"@{plan.offsets.get(buffer.id, 0)}"
        case "view":
            start = plan.layouts[buffer.id].offset * buffer.dtype.bytes
            return f"@{_name(plan.program, buffer.base)}+{start}"
        case kind:
            return f"@{kind}"


def _op(op: Op) -> str:
    values = (f"{k}={_value(v)}" for k, v in op.shown.items())
    inside = ", ".join(values)
    return f"{op.name} {{{inside}}}" if inside else op.name


def _value(value: object) -> str:
    match value:
        case DType():
            return value.name
        case str() if len(value) > 40:
            return f"'{value[:37]}...'"
        case _:
            text = repr(value)
            return text if len(text) <= 80 else f"{text[:77]}..."
