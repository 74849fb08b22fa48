"""Profiles and traces of steps on what stands for a GPU."""

from __future__ import annotations

import numpy as np
from backends.cupy.stand_in import StandIn
from backends.cupy.steps import batch, on, plan
from graphc_cupy.recording import GpuRecording

from graphc.lowering.kernel.lowered import Native
from graphc.lowering.lower import lower
from graphc.runtime.profiling.trace import trace_of
from graphc.runtime.profiling.traced_run import TracedTrainer
from graphc.runtime.trainer import Trainer

STRATEGY = "mirrored(2) * accumulate(2)"


def test_a_profile_has_each_launch_of_each_device_once() -> None:
    batches = [batch(), batch(256, 1)]
    with Trainer(plan(STRATEGY), on(StandIn())) as trainer:
        found = trainer.profile(batches, steps=2)
        assert not trainer.steps
    program = plan(STRATEGY).training
    lowered = lower(program, frozenset())
    loop = [i % 2 == 1 and i < len(lowered.parts) - 1 for i in range(len(lowered.parts))]
    calls = sum(
        len(line.calls) * (2 if inside and line.turn == "any" else 1)
        for part, inside in zip(lowered.parts, loop, strict=True)
        for line in part
        if isinstance(line, Native) and not line.home
    )
    for step in found.steps:
        assert {device for device, _ in step.events} == {0, 1} and step.threads == 1
        for events in step.events.values():
            assert len(events) == calls
            assert all(step.begin <= e.came <= e.ended <= step.end for e in events)
            assert [e.activity.program for e in events] == [program.name] * calls
    assert {row.label for row in found.rows("op")} >= {"einsum", "all_reduce"}
    assert trace_of(found)["traceEvents"]


def test_recording_changes_no_bit_and_ends() -> None:
    cuda, given = StandIn(), [batch(256, k) for k in range(6)]
    with (
        TracedTrainer(plan(STRATEGY), on(cuda), traced=2) as traced,
        Trainer(plan(STRATEGY), on(StandIn())) as plain,
    ):
        for k, each in enumerate(given):
            found, wanted = traced.step(each), plain.step(each)
            assert dict(found) == dict(wanted)
            assert bool(cuda.counts.times.get("graph")) == (k > 2)  # once nothing is recorded
        after = plain.variables()
        assert all(np.array_equal(x, after[n]) for n, x in traced.variables().items())
        assert traced.recorded is not None and len(traced.recorded.steps) == 2
        (recording,) = (x.recording for x in traced.engine._devices[0]._steps.values())  # type: ignore[union-attr]
        assert isinstance(recording, GpuRecording)
        assert not recording.records and not any(recording._records.values())
