"""All devices begin the same collectives in the same order; whatever differs is found before a run.

The judge is the transport of threads, which compares calls when they are made.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from graphc.compiler.driver import compile_module
from graphc.frontend.language.load import load_module
from graphc.ir.orders import Order
from graphc.lowering.program.program import Instruction, Loop, Program, Start, Wait
from graphc.ops.collective import AllReduce
from graphc.plan.collective_order import check_order, exchanges, packed, unpacked
from graphc.plan.plan import parse
from graphc.runtime.backends.site import Site
from graphc.runtime.data.supply import Counted
from graphc.runtime.transports.local import LocalTransport
from graphc.runtime.transports.transport import Communicator
from graphc.strategies import parse_strategy
from graphc.support.errors import GraphcError

DIGITS = load_module(Path(__file__).parents[2] / "examples" / "digits.gc")
STRATEGIES = (
    "mirrored(3)", "multi_worker_mirrored(2, 2)", "multi_worker_mirrored(2, 2) * reproducible(8)",
    "zero(2, stage=3) * accumulate(2)", "mirrored(2) * tensor_split(2)",
    "parameter_server(3, 2)",
)  # fmt: skip
MUTANTS = 300


@cache
def program(strategy: str, name: str = "train") -> Program:
    return compile_module(DIGITS, parse_strategy(strategy)).programs[name]


# -- mutants --------------------------------------------------------------------------------------


def edited(p: Program, edit: Callable[[Instruction], Iterator[Instruction]]) -> Program:
    """The program with every instruction replaced by what `edit` gives for it."""

    def inside(x: Instruction) -> Iterator[Instruction]:
        if isinstance(x, Loop):
            yield replace(x, body=tuple(z for y in x.body for z in inside(y)))
        else:
            yield from edit(x)

    body, commit = (tuple(z for y in part for z in inside(y)) for part in (p.body, p.commit))
    return replace(p, body=body, commit=commit)


def starts(p: Program) -> list[Start]:
    return [x for x in p.instructions if isinstance(x, Start)]


def dropped(p: Program, rng: random.Random) -> Program:
    gone = rng.choice(starts(p)).token
    return edited(p, lambda x: iter(() if getattr(x, "token", None) == gone else (x,)))


def repeated(p: Program, rng: random.Random) -> Program:
    again = rng.choice(starts(p))
    new = 1 + max(x.token for x in starts(p))

    def edit(x: Instruction) -> Iterator[Instruction]:
        yield x
        if x == Wait(again.token):
            yield from (replace(again, token=new), Wait(new))

    return edited(p, edit)


def swapped(p: Program, rng: random.Random) -> Program:
    """Two different collectives, each begun where the other was."""
    one, other = rng.sample(starts(p), 2)
    to = {one.token: other, other.token: one}
    return edited(
        p, lambda x: iter((replace(to[x.token], token=x.token) if isinstance(x, Start) and x.token in to else x,)),
    )  # fmt: skip


def resized(p: Program, rng: random.Random) -> Program:
    """A collective of a tensor of another shape."""
    chosen = rng.choice(starts(p))
    more = {chosen.operand, chosen.result}
    buffers = tuple(
        replace(b, shape=(*b.shape[:-1], b.shape[-1] + 1) if b.shape else (2,))
        if b.id in more else b
        for b in p.buffers
    )  # fmt: skip
    return replace(p, buffers=buffers)


def otherwise(p: Program, rng: random.Random) -> Program:
    """A collective of another kind, order or axis."""
    chosen = rng.choice(starts(p))
    op = chosen.op
    axes = [a.name for a in p.mesh.space if a.name != op.axis]
    others = [AllReduce(op.axis, order=Order.ACCUMULATE), AllReduce(op.axis, op="max")]
    others += [replace(op, axis=rng.choice(axes))] if axes else []
    new = rng.choice(others)
    return edited(p, lambda x: iter((replace(x, op=new) if x == chosen else x,)))


EDITS = (dropped, repeated, swapped, resized, otherwise)


def mutant(seed: int) -> tuple[Program, Program, str]:
    """A program, and what one device has instead of it."""
    rng = random.Random(f"order {seed}")
    strategy, edit = rng.choice(STRATEGIES), EDITS[seed % len(EDITS)]
    name = rng.choice(("train", "train.short"))
    p = program(strategy, name)
    for _ in range(20):
        changed = edit(p, rng)
        if [calls(x) for x in starts(p)] != [calls(x) for x in starts(changed)] or edit is resized:
            return p, changed, f"{edit.__name__} under {strategy}"
    raise AssertionError("every change is none")


def calls(x: Start) -> tuple[object, ...]:
    return x.op, x.operand


# -- the check ------------------------------------------------------------------------------------


@pytest.mark.one_in(2)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_program_has_one_order(strategy: str) -> None:
    found = exchanges(program(strategy))
    assert len(found) == len(starts(program(strategy))) > 0
    again = parse(compile_module(DIGITS, parse_strategy(strategy)).text()).programs["train"]
    check_order([found, exchanges(again), unpacked(packed(found))])


def test_every_mutant_is_found() -> None:
    missed = []
    for seed in range(MUTANTS):
        p, changed, what = mutant(seed)
        orders = [exchanges(p)] * p.mesh.devices
        orders[seed % p.mesh.devices] = exchanges(changed)
        try:
            check_order(orders)
            missed.append(f"{seed}: {what}")
        except GraphcError as error:
            assert error.code == "G0561"
    assert not missed


def test_the_message_names_both_calls_and_where_they_are_written() -> None:
    p = program("multi_worker_mirrored(2, 2)")
    words = (
        r"process 0 and process 1 do not begin the same collectives: number \d is reduce_scatter"
    )
    with pytest.raises(GraphcError, match=words) as error:
        check_order([exchanges(p), exchanges(swapped(p, random.Random(1)))], "process")
    assert "%bucket.sum" in error.value.message
    with pytest.raises(GraphcError, match="none on the other"):
        check_order([exchanges(p), exchanges(p)[:1]])
    with pytest.raises(GraphcError, match="of other shards"):
        other = replace(exchanges(p)[0], exactly="something else")
        check_order([exchanges(p), (other, *exchanges(p)[1:])])


def test_names_and_memory_may_differ() -> None:
    p = program("mirrored(3)")
    buffers = tuple(replace(b, name=f"{b.name}.other") for b in p.buffers)
    renamed = edited(p, lambda x: iter((replace(x, node="x") if isinstance(x, Start) else x,)))
    check_order([exchanges(p), exchanges(replace(renamed, buffers=buffers))])


# -- the judge ------------------------------------------------------------------------------------


def made(p: Program, comm: Communicator) -> None:
    """Make the calls of a program on a rank, with anything as operands."""
    site, supply = Site(p, comm.rank), Counted()
    handles = {}
    for part in p.parts:
        for x in filter(site.runs, part):
            if isinstance(x, Start):
                b = p.buffers[x.operand]
                call = site.call(x, 0, supply)
                handles[x.token] = comm.start(call, np.zeros(b.shape, b.dtype.numpy))
            elif isinstance(x, Wait):
                handles.pop(x.token).wait()


def meets(programs: list[Program]) -> bool:
    """Whether the transport of threads finds no fault with the calls of all devices."""
    with LocalTransport().open(len(programs), deadline=20) as session:
        try:
            session.run(lambda comm: made(programs[comm.rank], comm))
        except (GraphcError, AssertionError):  # calls that differ, or that fit no operand
            return False
    return True


@pytest.mark.parametrize("seed", range(0, 40, 2))
def test_what_the_transport_refuses_was_found_before(seed: int) -> None:
    p, changed, what = mutant(seed)
    everywhere = [p] * p.mesh.devices
    assert meets(everywhere)
    everywhere[seed % p.mesh.devices] = changed
    refused = not meets(everywhere)
    try:
        check_order([exchanges(x) for x in everywhere])
        assert not refused, what
    except GraphcError:
        pass
