"""The machine code of a program: lowered and printed, or found on disk."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import graphc.support.config as config
from graphc.lowering.kernel.lowered import Home, Host, Lowered, Native
from graphc.lowering.program.program import Instruction, Program
from graphc.support.config import cache_folder
from graphc.support.gc_pause import collector_paused
from graphc_numpy.native import records
from graphc_numpy.native.step.error_checks import checks_of, limits_of
from graphc_numpy.native.step.regions import Stretches, compile_stretches

SHOW_KERNELS = 3  # the level of GRAPHC_DEBUG that prints the kernels of a program


@dataclass(frozen=True)
class Compiled:
    """A program: its parts as instructions of the host and numbers of stretches."""

    program: Program
    lowered: Lowered
    parts: tuple[tuple[Instruction | int, ...], ...]
    homes: tuple[Home, ...]  # of each stretch
    stretches: Stretches
    checked: frozenset[int]  # the stretches that may note an error
    limits: dict[int, int]  # of each check


@collector_paused()
def compiled(program: Program, together: frozenset[str] | None, apart: bool = False) -> Compiled:
    """Lower a program and make machine code of it, or find that on disk.

    together, apart: as `graphc.lowering.lower` has them
    """
    # What is kept does not tell an error of checked addresses in words.
    lamps = config.get()
    if cache_folder() is None or apart or lamps.check_memory or lamps.debug >= SHOW_KERNELS:
        return Compiled(program, **vars(_lowered(program, together, apart)))
    key = records.key_of(program, together)
    found = records.read(key, program)
    if found is None:
        found = _lowered(program, together)
        records.write(key, program, found)
    return Compiled(program, **vars(found))


def _lowered(
    program: Program, together: frozenset[str] | None, apart: bool = False
) -> records.Found:
    from graphc.lowering.lower import lower  # where it is not on disk

    lowered = lower(program, together, apart)
    if config.get().debug >= SHOW_KERNELS:
        from graphc.lowering.kernel_listing import listing

        print(listing(program, lowered), file=sys.stderr)
    stretches: list[list[Native]] = []
    parts = [_joined(part, stretches) for part in lowered.parts]
    checked = frozenset(i for i, natives in enumerate(stretches) if any(map(_has_checks, natives)))
    code, limits = compile_stretches(stretches, memories=lowered.memories), limits_of(lowered)
    homes = tuple(natives[0].home for natives in stretches)
    return records.Found(lowered, tuple(parts), homes, code, checked, limits)


def _has_checks(native: Native) -> bool:
    return any(True for call in native.calls for _ in checks_of(call.kernel))


def _joined(part: Iterable[Native | Host], stretches: list[list[Native]]) -> tuple[Any, ...]:
    """The part with every run of native lines as the number of one stretch."""
    items: list[Instruction | int] = []
    for line in part:
        match line:
            case Host(instruction=x):
                items.append(x)
            case Native() if _goes_on(line, items, stretches):
                stretches[-1].append(line)
            case Native():
                items.append(len(stretches))
                stretches.append([line])
    return tuple(items)


def _goes_on(line: Native, items: list[Any], stretches: list[list[Native]]) -> bool:
    """Whether the same places run a line as the stretch before it."""
    return bool(items) and isinstance(items[-1], int) and stretches[-1][-1].home == line.home
