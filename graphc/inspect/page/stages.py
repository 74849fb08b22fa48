"""The stages of the lowering as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphc.lowering.kernel_listing import print_kernels
from graphc.lowering.lower import STAGES
from graphc.lowering.program.listing import print_program
from graphc.lowering.program.program import Program

MOST_LINES = 20_000  # of a listing; what is longer is cut


@dataclass(frozen=True)
class LoweringStage:
    """A stage of the lowering: what it does, and the lines that it leaves."""

    name: str
    purpose: str
    lines: tuple[str, ...]


def lowering_stages(program: Program) -> Iterator[LoweringStage]:
    """What each stage leaves, the program that they begin with first."""
    first = "the graph in the order in which it runs, as instructions over buffers"
    yield _stage("schedule", first, print_program(program))
    for name, purpose in STAGES.items():
        yield _stage(name, purpose, print_kernels(program, name))


def _stage(name: str, purpose: str, text: str) -> LoweringStage:
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], f"... {len(lines) - MOST_LINES} more lines"]
    return LoweringStage(name, f"{purpose[0].upper()}{purpose[1:]}.", tuple(lines))
