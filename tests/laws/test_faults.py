"""Law 5: the laws notice faults. Every fault of the list is planted and must be caught."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest
from graphc_numpy import BACKEND as NUMPY
from laws.differences import WrongGradient, check_gradient
from laws.execute import runner
from laws.faults import FAULTS, Fault
from laws.footprint import Misread, check_memory
from laws.law import Broken, Case, case, check
from laws.networks import mlp, under
from laws.simulate import simulate

from graphc.errors import GraphcError
from graphc.passes.schedule import schedule
from graphc.runtime.reference import BACKEND as REFERENCE

SEEDS = 120


def cases() -> Iterator[Case]:
    for seed in range(SEEDS):
        yield case(seed)


def verifier() -> None:
    for c in cases():
        assert c.graph is None or len(c.graph)


def mesh() -> None:
    for c in cases():
        check(c, simulate)


def run() -> None:
    for i, c in enumerate(cases()):
        check(c, runner((REFERENCE, NUMPY)[i % 2], c.config.short))


def passes() -> None:
    from laws.test_passes import holds_with_passes

    for seed in range(SEEDS):
        holds_with_passes(seed)


def memory() -> None:
    for c in cases():
        if c.graph is not None:
            check_memory(schedule(c.graph, exact=not c.config.short))


def slope() -> None:
    for seed in range(SEEDS):
        check_gradient(seed)


def structure() -> None:
    from laws.test_structure import in_the_loop

    assert not in_the_loop(under(mlp((8, 8, 8)), "mirrored(2) * accumulate(2)"))


LAWS: dict[str, Callable[[], None]] = {
    law.__name__: law for law in (verifier, mesh, run, passes, memory, slope, structure)
}


@pytest.fixture(autouse=True)
def fresh_caches() -> Iterator[None]:
    """Facts of ops are kept in caches: a fault must enter them, and must not stay there."""
    _clear_caches()
    yield
    _clear_caches()


def _clear_caches() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("graphc"):
            for value in list(vars(module).values()):
                clear = getattr(value, "cache_clear", None)
                if callable(clear):
                    clear()


CAUGHT = {
    "verifier": (GraphcError,), "mesh": (AssertionError, GraphcError),
    "run": (AssertionError, GraphcError), "passes": (AssertionError, GraphcError),
    "memory": (Misread,), "slope": (WrongGradient,), "structure": (AssertionError,),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=[f.name for f in FAULTS])
def test_a_planted_fault_is_caught(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    fault.plant(monkeypatch)
    with pytest.raises(CAUGHT[fault.caught]) as caught:
        LAWS[fault.caught]()
    if fault.caught == "verifier":
        assert isinstance(caught.value, GraphcError)
        assert caught.value.code.startswith("G09"), caught.value


@pytest.mark.parametrize("name", LAWS)
def test_without_a_fault_the_law_holds(name: str) -> None:
    LAWS[name]()


def test_there_are_at_least_thirty_faults() -> None:
    assert len({f.name for f in FAULTS}) == len(FAULTS) >= 30
    assert Broken.__doc__
