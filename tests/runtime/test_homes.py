"""Variables at home exist there only: memory, reading, writing, checkpoints."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from graphc_numpy import NumpyBackend
from graphc_numpy.calls.device import NumpyDevice

from graphc.compiler.driver import compile_module
from graphc.frontend.language.load import load_module
from graphc.ir.placement import Axis, Home, Mesh, Split, place
from graphc.ir.types import F32, F64, TensorType
from graphc.lowering.memory.memory_plan import plan_memory
from graphc.lowering.program.listing import print_program
from graphc.lowering.program.program import Buffer, Footprint, Program, Start, Wait
from graphc.plan.check import complaints
from graphc.plan.plan import Plan, parse
from graphc.runtime.backends.plugins import backend
from graphc.runtime.backends.site import Site
from graphc.runtime.machine.memory_limits import Limit, footprints, memory_in_words
from graphc.runtime.synchronous.engine import Engine
from graphc.runtime.synchronous.shards import is_held, owners, put_shard, shard_of
from graphc.runtime.trainer import Trainer, first_values
from graphc.strategies import parse_strategy
from graphc.support.errors import GraphcError

DIGITS = load_module(Path(__file__).parents[2] / "examples" / "digits.gc")
BATCH = {"x": np.ones((256, 64), np.float32), "y": np.zeros(256, np.int32)}
HOMES = ["central_storage(3)", "parameter_server(4, 2)"]


@cache
def plan(strategy: str) -> Plan:
    return compile_module(DIGITS, parse_strategy(strategy))


def train(strategy: str) -> Program:
    return plan(strategy).programs["train"]


# -- memory ---------------------------------------------------------------------------------------


def test_only_the_store_has_variables() -> None:
    store, others = plan_memory(train("central_storage(3)")).footprints
    assert (store.devices, others.devices) == (1, 2)
    assert store.variables == train("one_device()").variable_bytes and others.variables == 0
    assert store.peak == store.variables + store.constants + store.arena


def test_servers_share_the_variables() -> None:
    each = plan_memory(train("parameter_server(8, 2)")).footprints
    assert sum(f.variables * f.devices for f in each) == train("one_device()").variable_bytes
    assert each[-1] == Footprint(6, 0, each[-1].constants, each[-1].arena)


@pytest.mark.parametrize("strategy", ["mirrored(3)", "tensor_split(2)", "accumulate(2)"])
def test_without_homes_all_devices_need_the_same(strategy: str) -> None:
    program = train(strategy)
    (each,) = plan_memory(program).footprints
    assert each.devices == program.mesh.devices and each.variables == program.variable_bytes


@pytest.mark.parametrize("strategy", HOMES)
def test_a_device_allocates_what_is_at_home_on_it(strategy: str) -> None:
    made = plan(strategy)
    with Engine(made.step_programs, NumpyBackend(native=False), deadline=600) as engine:
        for rank, device in engine._devices.items():
            assert isinstance(device, NumpyDevice)
            at = engine.mesh.coordinates(rank)
            program = engine.first
            held = {v for v, b in program.variables.items() if program.buffers[b].lies_at(at)}
            assert set(device._variables) == held
            most = max(plan_memory(p).arena_at(at) for p in made.step_programs.values())
            assert device.footprint.arena == most


def test_what_all_devices_need_is_added_up_by_kind() -> None:
    each = footprints(plan("central_storage(3)"), NumpyBackend(native=False))
    needed = sum(f.devices * f.peak for f in each)
    assert [f.devices for f in each] == [1, 2]
    Limit(needed, "train").check("train", each)
    with pytest.raises(GraphcError, match="G0204"):
        Limit(needed - 1, "train").check("train", each)


def test_the_memory_is_told_of_the_largest_and_of_the_others() -> None:
    train_of_two = plan_memory(train("central_storage(2)"))
    program = train("central_storage(3)")
    store, others = each = plan_memory(program).footprints
    assert memory_in_words(each) == (
        f"{store.peak:,} bytes at most on 1 of them ({store.variables:,} of variables), "
        f"{others.peak:,} on the other 2 (0)"
    )
    assert "on the other (0)" in memory_in_words(train_of_two.footprints)
    text = print_program(program)
    assert f"memory of 1 devices {store.peak} bytes" in text
    assert f"memory of 2 devices {others.peak} bytes" in text
    assert "@variable on data=0" in text


def test_the_memory_is_told_as_before_where_all_need_the_same() -> None:
    program = train("mirrored(2)")
    each = plan_memory(program).footprints
    words = memory_in_words(each, exact=True)
    assert words.startswith(f"{each[0].peak:,} bytes on each")
    assert f"  memory {each[0].peak} bytes: arena" in print_program(program)


# -- who runs what --------------------------------------------------------------------------------


def test_an_instruction_runs_where_its_result_lies() -> None:
    program = train("parameter_server(4, 2)")
    at_home = [
        x for x in program.instructions
        if not isinstance(x, Start | Wait) and not Site(program, 3).runs(x)
    ]  # fmt: skip
    assert at_home
    for x in at_home:
        assert sum(Site(program, rank).runs(x) for rank in range(4)) == 1


def test_a_collective_is_run_by_all_along_its_axis() -> None:
    program = train("central_storage(2) * tensor_split(2)")
    for x in program.instructions:
        if isinstance(x, Start):
            runs = [Site(program, rank).runs(x) for rank in range(4)]
            along_data = x.op.attributes["axis"] == "data"
            homes = {*program.buffers[x.operand].home, *program.buffers[x.result].home}
            assert runs == [True] * 4 if along_data or not homes else [True, True, False, False]


def test_a_wait_goes_with_its_start() -> None:
    program = train("mirrored(2) * central_storage(2)")
    instructions = list(program.instructions)
    for rank in range(4):
        site = Site(program, rank)
        begun = [x.token for x in instructions if isinstance(x, Start) and site.runs(x)]
        ended = [x.token for x in instructions if isinstance(x, Wait) and site.runs(x)]
        assert sorted(begun) == sorted(ended)
    assert len(begun) < len([x for x in instructions if isinstance(x, Start)])


# -- reading and writing --------------------------------------------------------------------------

MESH = Mesh((Axis("data", 3), Axis("model", 2)))


@pytest.mark.parametrize("states", [{"data": Home(2)}, {"data": Home(1), "model": Split(1)}])
def test_a_value_is_read_from_its_home(states: dict) -> None:
    t = TensorType((7, 5), F64, (), place(MESH, states.items()))
    value, found = np.arange(35.0).reshape(7, 5), np.full((7, 5), np.nan)
    for rank in owners(t, MESH):
        assert is_held(t, MESH, rank)
        put_shard(shard_of(value, t, MESH, rank), t, MESH, rank, found)
    assert np.array_equal(found, value)
    assert [is_held(t, MESH, r) for r in range(6)].count(True) == 2


@pytest.mark.parametrize("name", ["numpy", "reference"])
@pytest.mark.parametrize("strategy", HOMES)
def test_variables_go_from_any_strategy_to_any_other(strategy: str, name: str) -> None:
    made, mirrored = plan(strategy), plan("mirrored(2)")
    with Engine(made.step_programs, backend(name), deadline=600) as engine:
        engine.load_variables(first_values(made))
        engine.step(BATCH, "train")
        saved = engine.variables()
    with Engine(mirrored.step_programs, backend(name), deadline=600) as other:
        other.load_variables(saved)
        want = other.step(BATCH, "train")["loss"]
        after = other.variables()
    with Engine(made.step_programs, backend(name), deadline=600) as engine:
        engine.load_variables(saved)
        assert engine.step(BATCH, "train")["loss"] == pytest.approx(want, rel=1e-6)
        for v, x in engine.variables().items():
            np.testing.assert_allclose(x, after[v], rtol=1e-5, atol=1e-6)


def test_part_of_the_variables_can_be_set() -> None:
    made = plan("parameter_server(4, 2)")
    with Trainer(made) as trainer:
        trainer.load({"w2": np.full((128, 10), 7, np.float32)})
        assert (trainer.variables()["w2"] == 7).all()


# -- plans ----------------------------------------------------------------------------------------


def test_a_plan_keeps_the_homes() -> None:
    made = plan("parameter_server(4, 2)")
    assert parse(made.text()).programs == made.programs


def test_a_home_that_the_mesh_does_not_have_is_refused() -> None:
    buffer = Buffer(0, "w", (), F32, "variable", home=(("data", 4),))
    mesh = Mesh((Axis("data", 4),))
    program = Program("p", mesh, (), (), (), (buffer,), {}, {}, {}, {}, {})
    assert "owned by a coordinate that the mesh does not have" in next(complaints(program))
