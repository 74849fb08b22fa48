"""What to say of a batch whose tree has other leaves than the example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphc.frontend.numpy.leaves import listed
from graphc.support.caller import user_span
from graphc.support.errors import GraphcError, did_you_mean


def other_leaves(batch: Any, given: Sequence[str], wanted: Sequence[str]) -> GraphcError:
    """The error (G0806) of a batch with the leaves `given`, where the example had `wanted`."""
    has = f"the batch has the leaves {listed(given, '')}" if given else "the batch has no array"
    text = f"{has}, the example had {listed(wanted, '')}"
    help = _form(batch, wanted) or _difference(batch, given, wanted)
    return GraphcError("G0806", text, span=user_span(), help=help)


def _form(batch: Any, wanted: Sequence[str]) -> str | None:
    """What to write where the whole batch is something else."""
    named = all(name.isidentifier() for name in wanted) and "batch" not in wanted
    form = "{" + ", ".join(f"'{name}': {name}" for name in wanted[:4]) + "}"
    match batch:
        case None:
            return "give a batch, not None"
        case [Mapping(), *_] if named:
            return "this is a list of batches: trainer.fit(batches) takes it, or step each"
        case np.ndarray() | list() | tuple() if named and not isinstance(batch, Mapping):
            return f"a batch has names here: {form}"
        case _:
            return None


def _difference(batch: Any, given: Sequence[str], wanted: Sequence[str]) -> str:
    """What is missing in a batch, and what is too much."""
    missing = [name for name in wanted if name not in given]
    others = [name for name in given if name not in wanted]
    entries = batch if isinstance(batch, Mapping) else {}
    empty = [name for name in missing if name in entries and entries[name] is None]
    lists = [name for name in missing if isinstance(entries.get(name), list | tuple)]
    if lists:
        return f"{listed(lists)}: each number of a list is a leaf; write np.array(x)"
    if empty:
        return f"None: {listed(empty)}"
    alike = others if len(others) <= len(wanted) else []
    hints = [hint for name in alike if (hint := did_you_mean(name, tuple(missing)))]
    parts = [f"missing: {listed(missing)}"] if missing else []
    parts += [f"not in the example: {listed(others)}"] if others else []
    return "; ".join([*hints[:1], *parts])
