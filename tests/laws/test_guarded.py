"""Machine code touches no memory but its own, and uses nothing that nobody wrote."""

from __future__ import annotations

import pytest
from graphc_numpy.native import machine
from guard import POSSIBLE
from laws.execute import NATIVE, runner
from laws.guarded import check_address, check_guarded, environment, shared_by_threads
from laws.law import case, check
from lowering.structures import ALL

from graphc.support.errors import GraphcError

pytestmark = pytest.mark.skipif(not POSSIBLE, reason="rights of pages are set as on Linux")
EVERY = 20  # structures, of all that there are, in the default run
SEEDS = range(20_000, 20_300)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", [*ALL][:: len(ALL) // EVERY])
def test_a_structure_stays_inside_its_memory(name: str) -> None:
    check_guarded(name, front=len(name) % 2 == 0)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("threads", ["1", "8"])
@pytest.mark.parametrize("target", ["avx512", "avx2", "baseline"])
def test_random_steps_stay_inside_their_memory_on_every_target(target: str, threads: str) -> None:
    with environment(GRAPHC_TARGET=target, GRAPHC_THREADS=threads), shared_by_threads():
        try:
            machine.target()
        except GraphcError as error:
            pytest.skip(error.message)
        for name in ALL:
            for front in (False, True):
                check_guarded(name, front, apart=not front)
        for seed in SEEDS:
            c = case(seed)
            check(c, runner(NATIVE, c.config.short))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_address_of_a_structure_is_outside_of_its_buffer() -> None:
    for name in ALL:
        check_address(name)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_address_of_a_random_step_is_outside_of_its_buffer() -> None:
    with environment(GRAPHC_CHECK_MEMORY="1", GRAPHC_THREADS="8"), shared_by_threads():
        for seed in SEEDS:
            c = case(seed)
            check(c, runner(NATIVE, c.config.short))
