"""Whether a plan fits into the memory of the machine that is to run it, asked before it runs."""

from __future__ import annotations

import os
from collections.abc import Iterable

from graphc.ir.types import in_units
from graphc.lowering.program.program import Program
from graphc.plan.plan import Plan
from graphc.support.errors import GraphcError
from graphc.support.lazy_map import made


def check_memory(plan: Plan, limit: int | None = None) -> None:
    """Raise G0204 where the devices together need more than the limit, as far as programs are made.

    limit: bytes; None is this machine's memory, where the system tells it
    """
    limit = machine_bytes() if limit is None else limit
    needed, name = max(
        ((_needed(name, p), name) for name, p in made(plan.programs).items()),
        default=(0, ""),
    )
    together = _of_parts(plan)
    if limit is None or max(needed, together) <= limit:
        return
    if needed < together:
        text = f"{plan.strategy} needs {in_units(together)} for workers and servers together"
        help = "use fewer workers, or raise the limit: --max-bytes, max_bytes="
        raise GraphcError("G0204", f"{text}, there are {in_units(limit)}", help=help)
    program = plan.programs[name]
    devices = program.mesh.devices
    where = f"{devices} devices together" if devices > 1 else "one device"
    message = f"program '{name}' needs {in_units(needed)} on {where}, there are {in_units(limit)}"
    help = "check the dims; if they are meant, raise the limit: --max-bytes, max_bytes="
    if devices > 1:
        help = "use fewer devices, or cut the variables with tensor_split; " + help
    raise GraphcError("G0204", message, help=help)


def _needed(name: str, program: Program) -> int:
    """Bytes of all devices together. First values are computed on the host, value by value, where
    a view is a copy."""
    if name == "init":
        return sum(b.bytes for b in program.buffers)
    return sum(f.devices * f.peak for f in program.footprints)


def _of_parts(plan: Plan) -> int:
    """Bytes of all workers and servers together; 0 where the step was not cut."""
    if plan.asynchronous is None:
        return 0
    worker = sum(f.devices * f.peak for f in plan.training.footprints)
    return plan.asynchronous.workers * worker + sum(p.peak_bytes for p in plan.servers)


def memory_in_words(program: Program) -> str:
    """What the devices need: of one, where all need the same, else of the largest and the rest."""
    most, *rest = program.footprints
    kept = f", {program.kept_bytes:,} kept from loop to loop" if program.kept_bytes else ""
    if not rest:
        return f"{most.peak:,} bytes at most on each ({most.variables:,} of variables{kept})"
    others = sum(f.devices for f in rest)
    peaks = _from_to(f.peak for f in rest)
    variables = _from_to(f.variables for f in rest)
    first = f"{most.peak:,} bytes at most on {most.devices} of them"
    kept = f"({most.variables:,} of variables{kept})"
    return f"{first} {kept}, {peaks} on the other {others} ({variables})"


def _from_to(numbers: Iterable[int]) -> str:
    found = sorted(set(numbers))
    return f"{found[0]:,}" if len(found) == 1 else f"{found[0]:,} to {found[-1]:,}"


def machine_bytes() -> int | None:
    """The memory of this machine; None where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
