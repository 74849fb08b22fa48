"""What a step needs of pinned memory, and a step that is under way.

There are two of the former, which steps take by turns: so the batch of a step is written, and goes
to the GPU on a stream of its own, while the step before runs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from graphc.runtime.data.supply import Array, Supply
from graphc.runtime.machine.interrupts import Uninterrupted
from graphc.support.errors import GraphcError
from graphc_cupy.memory import Results, Staging

if TYPE_CHECKING:
    from graphc_cupy.graph import CupyStep

SLOTS = 2


class StepSlot:
    """One of the two. staging: the batch; results, words: what comes back, outputs and checks

    graphs: of steps that use it, by the number of examples; staged: the key of the supply that
            pinned memory holds; sent, done: events: the batch has arrived; the step is over
    """

    def __init__(self, cuda: Any, staging: Staging, results: Results, words: Results) -> None:
        self.staging, self.results, self.words = staging, results, words
        self.graphs: dict[Hashable, Any] = {}
        self.staged: object | None = None
        self.sent, self.done = (cuda.Event(disable_timing=True) for _ in range(2))


class PendingStep:
    """A step that was given to the GPU. whole: the batch, to tell where an error is

    failed: called with whether variables may be lost, before an error is raised
    """

    def __init__(
        self, step: CupyStep, slot: StepSlot, supply: Supply, whole: Callable[[], Supply],
        failed: Callable[[bool], None],
    ) -> None:  # fmt: skip
        self._step: CupyStep | None = step
        self._slot, self._supply, self._whole = slot, supply, whole
        self._failed, self._lost = failed, True
        self._outputs: dict[str, Array] | None = None
        self._error: BaseException | None = None

    @property
    def is_over(self) -> bool:
        """Whether somebody has waited for it."""
        return self._outputs is not None or self._error is not None

    def is_of(self, step: CupyStep) -> bool:
        """Whether it is a step of a program on its ranks."""
        return self._step is step

    def settle(self) -> dict[str, Array]:
        """Wait for the end; the outputs. Raises what a check has found, each time it is asked."""
        self.finish()
        if self._error is not None:
            raise self._error.with_traceback(None)  # its frames would have the GPU's memory
        assert self._outputs is not None
        return self._outputs

    def finish(self) -> None:
        """Wait for the end, without telling an error yet."""
        if not self.is_over:
            with Uninterrupted():
                self._end()

    def _end(self) -> None:
        step, self._step = self._step, None
        assert step is not None
        try:
            self._slot.done.synchronize()
            step.raise_found(self._slot, self._whole, self._commits)
            self._outputs = step.outputs(self._slot, self._supply)
        except BaseException as error:
            self._error = error.with_traceback(None)
            self._failed(self._lost)
        # What its results are read from later must not keep the batch, and the GPU's memory.
        del self._slot, self._whole, self._failed

    def _commits(self, now: bool) -> None:
        self._lost = now


def of_the_step_before(wait: Callable[[], object]) -> None:
    """Wait for the step before this one, and say of its error that it is that."""
    try:
        wait()
    except GraphcError as error:
        error.message = f"in the step before this one: {error.message}"
        raise
