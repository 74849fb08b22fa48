"""The file that an internal failure of a step leaves: its program, to be run again.

It contains no data. graphc.runtime.diagnosis.replay runs it.
"""

from __future__ import annotations

from pathlib import Path

import graphc.support.config as config
from graphc.lowering.program.program import Program
from graphc.plan.plan import Plan, PlannedVariable
from graphc.support.errors import GraphcError, InternalError

FILE = "graphc-crash.plan"


def with_replay(error: InternalError, program: Program) -> InternalError:
    """The error, naming a file that holds the program and how to run it."""
    path = Path(config.get().dump or ".") / FILE
    try:
        plan_of(program).save(path)
    except GraphcError:
        error.help = "this is a bug in graphc; no replay file could be written"
        return error
    error.replay = str(path)
    how = "GRAPHC_CHECK_MEMORY=1 " * config.get().check_memory
    error.help = f"this is a bug in graphc; `{how}python -m graphc.runtime.diagnosis.replay {path}`"
    error.help += " replays it"
    return error


def plan_of(program: Program) -> Plan:
    """A plan that contains nothing else."""
    return Plan(
        program.name, {"train": program}, {x: PlannedVariable() for x in program.variable_types}
    )
