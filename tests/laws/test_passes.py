"""Law 2: any of the optional passes, in any order, before placing and after, changes no result."""

from __future__ import annotations

import random

import pytest
from laws.execute import PLAIN, runner
from laws.law import Broken, case, check, describe
from laws.simulate import simulate
from shares import every

from graphc.compiler.pipeline import distribution, partitioning, run_passes
from graphc.passes.base import PASSES, Pass
from graphc.passes.partitioning.loops import Loops
from graphc.strategies import parse_strategy
from graphc.support.errors import GraphcError

OPTIONAL = [cls for cls in PASSES.values() if cls.optional]
CASES = 120
SLICE = 10


def some_passes(rng: random.Random) -> list[Pass]:
    """A few optional passes, one perhaps twice, in any order."""
    return [cls() for cls in rng.choices(OPTIONAL, k=rng.randrange(len(OPTIONAL) + 2))]


@pytest.mark.parametrize("start", every(4, range(0, CASES, SLICE)))
def test_optional_passes_in_any_order_keep_the_result(start: int) -> None:
    for seed in range(start, start + SLICE):
        holds_with_passes(seed)


def holds_with_passes(seed: int, kinds: tuple[str, ...] = ()) -> None:
    """Law 2 for the case of that seed. Raises Broken."""
    c, rng = case(seed, kinds), random.Random(seed)
    strategy = parse_strategy(c.strategy)
    partition, *_ = partitioning(strategy, c.config.short)
    before, after = some_passes(rng), some_passes(rng)
    try:
        placing = [*distribution(strategy), partition, *after, Loops()]
        graph = run_passes(c.model.graph, [*before, *placing])
        check(c, simulate, runner(PLAIN, c.config.short), graph=graph)
    except (AssertionError, GraphcError) as error:
        names = [[str(p) for p in part] for part in (before, after)]
        raise Broken(f"passes {names}: {error}\n\n{describe(c)}") from None


def test_every_optional_pass_is_drawn() -> None:
    drawn = {type(p) for seed in range(CASES) for p in some_passes(random.Random(seed))}
    assert drawn == set(OPTIONAL)
