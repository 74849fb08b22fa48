"""Every strategy, for 1, 8, 64 and 1,024 devices: one program but for constants, one compile time.

The strategies come from the registry, with each setting of theirs by itself, and in products with
time, with a tensor split and on a grid, so that a new one is covered without a word here. Compile
time is counted in function calls; the clock is asked under `slow`.
"""

from __future__ import annotations

import cProfile
import pstats
import time
from collections.abc import Iterator
from dataclasses import Field, fields
from functools import cache
from typing import Any

import pytest
from compiler.test_scale import shape_of
from shares import every

from graphc.compiler.driver import compile_module
from graphc.frontend.language.load import module_of_source
from graphc.frontend.module import Module
from graphc.ir.orders import Order
from graphc.plan.plan import Plan
from graphc.strategies import STRATEGIES, OneDevice, Strategy, layout_of, parse_strategy
from graphc.support.errors import GraphcError

DEVICES = (1, 8, 64, 1_024)
SLACK = 1.1  # of calls, between any two numbers of devices
WORDS = {  # what a setting in words may be
    "reduce": tuple(Order), "order": tuple(Order), "scatter": ("turn", "update"), "outer": ("sgd(lr=0.5)",),
}  # fmt: skip
FACTORS = ("accumulate(2)", "tensor_split(2)")
GRIDS = {True: "reproducible(slots=1024)", False: "reproducible(slots=2, tiles=1024)"}
# Such sizes that the cut which is chosen stays the cheapest for 1,024 devices: that may turn with sizes.
SOURCE = """
step stack(x: f32[batch, 16384], y: f32[batch, 2048]) {
    param w: f32[16384, 2048] = he_normal()
    param b: f32[2048] = zeros()
    minimize mse(relu(x @ w + b), y) with sgd(0.1, momentum=0.9)
}
"""


@cache
def module() -> Module:
    return module_of_source(SOURCE, sizes={"batch": 4_096})


def compiled(strategy: str) -> Plan:
    return compile_module(module(), parse_strategy(strategy))


# -- the strategies ----------------------------------------------------------------------------------


def grows(cls: type[Strategy]) -> bool:
    """Whether the first setting of a strategy is a number of places."""
    layout = layout_of(cls())
    return cls is not OneDevice and layout.grid is None and layout.precision is None


def values(setting: Field[Any]) -> Iterator[object]:
    """What a setting may be, some of it refused."""
    match setting.type:
        case "int" | "int | None":
            yield from (1, 2, 3)
        case "str" | "Order":
            yield from WORDS[setting.name]


def variants() -> Iterator[str]:
    """Every strategy, as it is and with each of its settings; {n} stands for its places."""
    for name, cls in STRATEGIES.items():
        if grows(cls):
            yield f"{name}({{n}})"
            for setting in fields(cls)[1:]:  # type: ignore[arg-type]
                for value in values(setting) if setting.name != "axis" else ():
                    shown = f'"{value}"' if isinstance(value, str | Order) else value
                    text = f"{name}({{n}}, {setting.name}={shown})"
                    if value != setting.default and is_one(text):
                        yield text


def is_one(text: str) -> bool:
    """Whether the text is a strategy, for some number of places."""
    try:
        layout_of(parse_strategy(text.format(n=DEVICES[-1])))
    except GraphcError as error:
        assert error.code in ("G0402", "G0442")
        return False
    return True


def products() -> Iterator[str]:
    """Every strategy in a product with each factor that it may stand beside."""
    for name, cls in STRATEGIES.items():
        if not grows(cls):
            continue
        for factor in (*FACTORS, GRIDS[bool(layout_of(cls()).batch)]):
            text = f"{name}({{n}}) * {factor}"
            if is_one(text):
                yield text


def sizes(text: str) -> list[int]:
    """The numbers of devices to compile for; a server is a device too.

    On a grid, each device has several leaves: one leaf needs no turn (the pass `one_turn`). Where
    links differ, there are two hosts at least: one sends nothing over a slower link.
    """
    servers = getattr(parse_strategy(text.format(n=8)).parts[0], "servers", 1)
    most = DEVICES[-1] // (2 if text.endswith(GRIDS[True]) else 1)
    few = [n for n in DEVICES[:-1] if n >= servers and (n != 64 or " * " not in text)]
    links = {a.link for a in layout_of(parse_strategy(text.format(n=8))).mesh.space}
    least = 2 if len(links) > 1 else 1
    return [*(max(n, least) for n in few), most]


ALL = [*variants(), *products()]


def test_the_registry_has_them_all() -> None:
    for name, cls in STRATEGIES.items():
        assert not grows(cls) or f"{name}({{n}})" in ALL
    assert len(ALL) > 30 and 'mirrored({n}, reduce="tree")' in ALL
    assert "zero({n}, stage=3)" in ALL and "zero({n}) * reproducible(slots=1024)" in ALL


# -- the laws ----------------------------------------------------------------------------------------


def counted(strategy: str) -> tuple[Plan, int]:
    """The plan, and the function calls of compiling it: time, without the clock."""
    with cProfile.Profile() as profile:
        plan = compiled(strategy)
    return plan, int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


@pytest.mark.one_in(3, ci=4)
@pytest.mark.filterwarnings("ignore::graphc.support.errors.GraphcWarning")
@pytest.mark.parametrize("strategy", every(4, ALL))
def test_for_any_number_of_devices_programs_and_compile_time_are_the_same(strategy: str) -> None:
    one, *between, most = (strategy.format(n=n) for n in sizes(strategy))
    plans = list(map(compiled, between))  # first: what is imported and cached once is not counted
    (first, few), (last, many) = counted(one), counted(most)
    for name in first.programs:
        shapes = [shape_of(plan.programs[name]) for plan in (first, *plans, last)]
        assert shapes.count(shapes[0]) == len(shapes), name
    assert max(few, many) <= SLACK * min(few, many)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::graphc.support.errors.GraphcWarning")
@pytest.mark.parametrize("strategy", [s for s in ALL if "=" not in s])
def test_compiling_for_many_devices_takes_as_long_by_the_clock(strategy: str) -> None:
    def seconds(n: int) -> float:
        start = time.process_time()
        compiled(strategy.format(n=n))
        return time.process_time() - start

    few = many = float("inf")
    for turn in range(60):  # the least of several, by turns: others may use the machine, too
        few, many = min(few, seconds(8)), min(many, seconds(1_024))
        if turn > 5 and many <= SLACK * few:
            return
    raise AssertionError(f"{few:.4f} s for 8 devices, {many:.4f} s for 1,024")
