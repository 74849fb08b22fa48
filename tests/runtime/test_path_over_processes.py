"""The fast path of processes with one device each: the bits of the normal path, whichever of the
processes take it."""

from __future__ import annotations

import pytest
from runtime.test_processes import STRATEGIES, batch, in_processes, plan

from graphc.runtime.synchronous.fast_paths import FastPaths
from graphc.runtime.trainer import Trainer
from graphc.support.errors import GraphcError

SIZES = (16, 16, 11, 16, 11, 16)
OF_FOUR = [s for s in STRATEGIES if plan(s).devices == 4]
ON_PATH = {
    "mirrored(4)",
    "mirrored(4) * reproducible(8)",
    "tensor_split(4)",
    "local_sgd(4, every=2)",
}


def trained(trainer, sizes=SIZES):
    """Losses, variables, and how many steps of each length were made on the fast path."""
    with trainer, trainer.engine.stopping:
        losses = [trainer.step(batch(k, n))["loss"] for k, n in enumerate(sizes)]
        paths = trainer.engine._fast_paths.get("train")
        made = (0, 0)
        if isinstance(paths, FastPaths):
            made = paths.full.done, paths.short.done if paths.short else 0
        return losses, {k: v.tobytes() for k, v in trainer.variables().items()}, made


def threads(strategy):
    losses, values, _ = trained(Trainer(plan(strategy)))
    return losses, values


@pytest.mark.one_in(len(OF_FOUR), ci=3)
@pytest.mark.parametrize("strategy", OF_FOUR)
def test_steps_on_the_fast_path_have_the_bits_of_threads(strategy):
    made = in_processes(4, lambda t, k: trained(Trainer(plan(strategy), transport=t)))
    expected = threads(strategy)
    for losses, values, steps in made:
        assert (losses, values) == expected
        if strategy in ON_PATH:  # not the first of either length
            assert steps == (3, 1) or (steps == (3, 0) and "reproducible" in strategy)


def test_each_process_takes_the_path_or_not_by_itself():
    strategy = "mirrored(2) * reproducible(4)"

    def work(transport, process):
        trainer = Trainer(plan(strategy), transport=transport)
        if process == 1:
            trainer.fast_path = lambda batch: None
        return trained(trainer)

    made = in_processes(2, work)
    assert [steps[0] for _, _, steps in made] == [3, 0]
    assert all((losses, values) == threads(strategy) for losses, values, _ in made)


def test_outside_of_a_fit_steps_take_the_normal_path():
    def work(transport, process):
        with Trainer(plan("mirrored(2)"), transport=transport) as trainer:
            for k in range(4):
                trainer.step(batch(k))
            return trainer.engine._fast_paths["train"].done, trainer.steps

    assert in_processes(2, work) == [(0, 4)] * 2


@pytest.mark.parametrize("process", [pytest.param(0, marks=pytest.mark.ci), 1])
def test_an_index_out_of_range_on_the_path_is_told_in_all_and_nothing_was_written(process):
    def work(transport, index):
        with Trainer(plan("mirrored(2)"), transport=transport) as trainer, trainer.engine.stopping:
            for k in range(3):
                trainer.step(batch(k))
            before = trainer.variables()
            wrong = batch(3)
            wrong["label"][8 * process + 3] = 99
            with pytest.raises(GraphcError) as error:
                trainer.step(wrong)
            same = all((trainer.variables()[n] == x).all() for n, x in before.items())
            trainer.step(batch(4))
            paths = trainer.engine._fast_paths["train"]
            return error.value.code, error.value.message, same, trainer.steps, paths.done

    one, other = in_processes(2, work)
    assert one == other
    assert one[0] == "G0506" and "99" in one[1] and one[2:] == (True, 4, 3)
