"""Whether a plan fits into the memory of the machine that is to run it, asked before it runs."""

from __future__ import annotations

import os

from graphc.errors import GraphcError
from graphc.runtime.plan import Plan
from graphc.types import in_units


def check_memory(plan: Plan, limit: int | None = None) -> None:
    """Raise G0204 where the devices together need more than the limit.

    limit: bytes; None is this machine's memory, where the system tells it
    """
    limit = machine_bytes() if limit is None else limit
    needed, name = max(
        (
            (sum(f.devices * f.peak for f in p.footprints), name)
            for name, p in plan.programs.items()
        ),
        default=(0, ""),
    )
    if limit is None or needed <= limit:
        return
    program = plan.programs[name]
    devices = program.mesh.devices
    where = f"{devices} devices together" if devices > 1 else "one device"
    message = f"program '{name}' needs {in_units(needed)} on {where}, there are {in_units(limit)}"
    help = "check the dims; if they are meant, raise the limit: --max-bytes, max_bytes="
    if devices > 1:
        help = "use fewer devices, or cut the variables with tensor_split; " + help
    raise GraphcError("G0204", message, help=help)


def machine_bytes() -> int | None:
    """The memory of this machine; None where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
