"""Faults of steps that fail: what is checked too late, kept by some devices only, or not cleared.

And one of a table that is cut: its rows are added in another order than those of a whole one.

The first two of them no law saw, since every law ran good steps only.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from graphc_numpy.calls.device import NumpyDevice
from graphc_numpy.native import compiled
from graphc_numpy.native.device import NativeDevice
from graphc_numpy.native.step.error_checks import FailedChecks
from laws import failing
from laws.fault import Patch, around, fault

import graphc.lowering.lower as lower
from graphc.ops.blocks import tree_sum
from graphc.ops.indexing import ScatterAdd, Within, local
from graphc.runtime.backends.executor import KernelDevice
from graphc.runtime.synchronous.engine import Engine


@fault("failing", "native", "index")
def _checked_after_a_write(patch: Patch) -> None:
    """An index is checked by kernels that also write variables."""
    patch.setattr(lower, "checks_first", lambda draft: None)
    patch.setattr(compiled, "cache_folder", lambda: None)  # what is kept there has no fault


@fault("failing", "native", "stream")
def _made_ready_by_each_device(patch: Patch) -> None:
    """A device makes a program ready in its first step, whether the others come so far or not."""

    def step(old: Any, self: NativeDevice, program: str, supply: Any) -> Any:
        if program not in self._steps:
            self.prepare(program)
        return old(self, program, supply)

    patch.setattr(Engine, "_prepare", lambda self, name: None)
    around(patch, NativeDevice, "step", step)
    patch.setattr(failing, "LAST_NET", 5)  # the rest of the case takes well below a second


@fault("failing", "native", "index", "label")
def _noted_for_ever(patch: Patch) -> None:
    """What a check has noted on a device whose error nobody asked for is raised by the next step."""
    patch.setattr(FailedChecks, "forget", lambda self: None)


@fault("failing", "plain", "instruction")
def _written_before_all_have_come(patch: Patch) -> None:
    """A device writes its variables while another may still fail, and nobody says so."""

    def step(old: Any, self: Any, program: str, supply: Any) -> Any:
        try:
            return old(self, program, supply)
        finally:
            self.committing = False

    for kind in (NumpyDevice, KernelDevice):
        around(patch, kind, "step", step)


@fault("failing", "plain", "reference", "label")
def _labels_unchecked(patch: Patch) -> None:
    """A label that is no class has a loss."""
    patch.setattr(Within, "run", lambda self, x: x.copy())


@fault("rows")
def _added_by_pairs_in_a_part(patch: Patch) -> None:
    """A part of a table adds the rows of an index by pairs, the whole one one by one."""

    def run(self: ScatterAdd, shard: Any, ids: Any, updates: Any) -> Any:
        at, inside = local(ids, shard, 0, self.name)
        order = np.argsort(at[inside], kind="stable")
        found, rows = at[inside][order], updates.reshape(*ids.shape, -1)[inside][order]
        starts = np.flatnonzero(np.diff(found, prepend=-1))
        out = np.zeros(shard.shape, updates.dtype)
        if len(found):
            made = [tree_sum(rows[i:j]) for i, j in pairwise([*starts, len(found)])]
            out[found[starts]] = np.reshape(made, (-1, *out.shape[1:]))
        return out

    patch.setattr(ScatterAdd, "run_shard", run)
