"""Which program makes a step with a batch, and how it is fed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphc.ir.placement import Mesh
from graphc.runtime.backends.backend import Programs
from graphc.runtime.data.batches import Batch, has_lengths, is_full
from graphc.runtime.data.stream import MicrobatchStream, collected, only_microbatch
from graphc.runtime.data.supply import Supply, WholeBatch
from graphc.support.errors import GraphcError, did_you_mean

SHORT = ".short"  # `NAME.short` is program NAME for batches that are not full


def full_counts(programs: Programs, name: str) -> Mapping[str, int]:
    """The number of units of each extent in a full batch of a program, or of its `.short`."""
    return programs.get(name + SHORT, programs[name]).counts


def supply_of(
    programs: Programs, mesh: Mesh, name: str, batch: Batch | Iterator[Batch], poison: bool
) -> tuple[str, Supply]:
    """The program that is run, and its supply. Raises G0511 if there is no program of this name.

    batch: a whole one, or an iterator of microbatches; poison: see `WholeBatch`
    """
    if name not in programs:
        known = tuple(programs)
        hint = did_you_mean(name, known) or f"there are: {', '.join(known)}"
        raise GraphcError("G0511", f"there is no program '{name}'", help=hint)
    short = name + SHORT
    if not isinstance(batch, Mapping) and isinstance(batch, Iterator):
        if mesh.leaves is not None:  # leaves are cut of the whole batch, not of its shards
            whole = collected(programs[name].inputs, batch)
            return supply_of(programs, mesh, name, whole, poison)
        if not mesh.time:
            return supply_of(programs, mesh, name, only_microbatch(batch), poison)
        name = short if short in programs else name
        return name, MicrobatchStream(programs[name], batch, poison=poison)
    full = short not in programs or is_full(programs[name], batch)
    if not full and not has_lengths(programs[short], batch):
        name = short
    return name, WholeBatch(programs[name], batch, poison=poison)
