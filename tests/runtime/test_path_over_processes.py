"""The fast path of processes with one device each: the bits of the normal path, whichever of the
processes take it."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from runtime.test_processes import STRATEGIES, batch, in_processes, plan

from graphc.runtime.supervision.reporter import REPORTER
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


def trained(trainer, sizes=SIZES, fit=True):
    """Losses, variables, and how many steps of each length were made on the fast path.

    fit: as in a training that `fit` makes; else as in a loop of the user
    """
    with trainer, trainer.engine.stopping if fit else nullcontext():
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


@pytest.mark.one_in(len(OF_FOUR), ci=3)
@pytest.mark.parametrize("strategy", OF_FOUR)
def test_a_loop_of_the_user_takes_the_fast_path_with_the_same_bits(strategy):
    made = in_processes(4, lambda t, k: trained(Trainer(plan(strategy), transport=t), fit=False))
    expected = threads(strategy)
    for losses, values, steps in made:
        assert (losses, values) == expected
        if strategy in ON_PATH:
            assert steps == (3, 1) or (steps == (3, 0) and "reproducible" in strategy)


def test_in_a_loop_of_the_user_each_process_takes_the_path_or_not_by_itself():
    def work(transport, process):
        trainer = Trainer(plan("local_sgd(2, every=2)"), transport=transport)
        if process == 1:
            trainer.fast_path = lambda batch: None
        return trained(trainer, fit=False)

    made = in_processes(2, work)
    assert [steps[0] for _, _, steps in made] == [3, 0]
    expected = threads("local_sgd(2, every=2)")
    assert all((losses, values) == expected for losses, values, _ in made)


def test_a_step_in_a_loop_of_the_user_says_which_one_it_is():
    """So that a process that dies or freezes in it is reported there."""

    def work(transport, process):
        with Trainer(plan("mirrored(2)"), transport=transport) as trainer:
            for k in range(4):
                trainer.step(batch(k))
            return trainer.engine._fast_paths["train"].done, trainer.steps

    assert in_processes(2, work) == [(3, 4)] * 2
    assert REPORTER.step_number == 4


@pytest.mark.parametrize("process", [pytest.param(0, marks=pytest.mark.ci), 1])
@pytest.mark.parametrize("fit", [pytest.param(True, marks=pytest.mark.ci), False])
def test_an_index_out_of_range_on_the_path_is_told_in_all_and_nothing_was_written(process, fit):
    def work(transport, index):
        trainer = Trainer(plan("mirrored(2)"), transport=transport)
        with trainer, trainer.engine.stopping if fit else nullcontext():
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
