"""Before a step writes, all devices have come so far; often a sum over all of them tells it."""

from __future__ import annotations

from typing import Any

import pytest
from runtime.test_processes import batch, in_processes, plan

from graphc.ir.collectives import Collective
from graphc.ir.orders import Order
from graphc.ir.placement import Partial, R, Split
from graphc.runtime.trainer import Trainer
from graphc.runtime.transports.transport import CollectiveCall, Communicator, Parts, hears_all

TREE = Collective(Partial(), R, Order.TREE)


@pytest.mark.parametrize(
    "strategy, examples, found",
    [
        ("mirrored(4)", 16, 0),
        ("mirrored(4)", 11, 0),
        ("mirrored(4) * reproducible(8)", 16, 0),
        ("mirrored(4) * reproducible(8)", 1, 1),  # of one leaf: other devices have nothing to add
        ("zero(4, stage=2)", 16, 0),
    ],
)
def test_devices_meet_only_if_no_sum_tells_that_all_have_come(
    strategy: str, examples: int, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[int] = []
    barrier = Communicator.barrier

    def counted(self: Any, group: Any) -> None:
        met.append(self.rank)
        barrier(self, group)

    def work(transport: Any, index: int) -> Any:
        with Trainer(plan(strategy), "numpy", transport=transport) as trainer:
            trainer.step(batch(0, examples))
            trainer.processes.all_gather(b"")  # all have come so far
            before = met.count(0)
            trainer.step(batch(1, examples))
            return met.count(0) - before if index == 0 else found

    monkeypatch.setattr(Communicator, "barrier", counted)
    assert in_processes(2, work) == [found, found]


def test_a_sum_is_heard_of_all_if_all_have_something_to_add() -> None:
    group = (0, 1, 2, 3)
    flat = CollectiveCall(Collective(Partial(), R, Order.ADD_N), group)
    assert hears_all(flat, entries=4, size=4, here=2)
    assert not hears_all(flat, entries=3, size=4, here=2)  # in parts, some of them empty
    assert not hears_all(flat, entries=8, size=8, here=2)  # others do not take part
    leaves = {n: CollectiveCall(TREE, group, leaves=(2, n)) for n in (4, 5, 8)}
    heard = {n: hears_all(call, 9, 4, 2) for n, call in leaves.items()}
    assert heard == {4: False, 5: True, 8: True}
    for lengths, heard_of_all in (((2, 2, 2, 2), True), ((3, 3, 2, 0), False)):
        after = Parts(0, tuple((2 * k, n) for k, n in enumerate(lengths)), 3)
        scattered = CollectiveCall(Collective(Partial(), Split(0), Order.ADD_N), group, None, after)
        assert hears_all(scattered, 9, 4, 2) is heard_of_all
    gathered = CollectiveCall(Collective(Split(0), R), group, Parts(0, ((0, 1),) * 4, 4))
    assert not hears_all(gathered, 4, 4, 2)
