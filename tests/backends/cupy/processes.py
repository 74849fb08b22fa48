"""Jobs of several processes with a GPU each, played by threads that share nothing but a bridge and
what stands for NCCL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from backends.cupy.stand_in_gpus import StandInMachine
from backends.cupy.stand_in_nccl import NcclWorld
from backends.cupy.steps import plan, start_values
from runtime.memory_bridge import Hub, MemoryTransport

from graphc.runtime.synchronous.engine import Engine


def job(
    strategy: str, count: int, act: Callable[[int, Engine], Any],
    machines: Sequence[StandInMachine] | None = None, patience: float = 20.0,
    deadline: float | None = None,
) -> list[Any]:  # fmt: skip
    """What `act` gives in each process, or the error that ended it."""
    world, hub = NcclWorld(), Hub(count)
    machines = machines or [StandInMachine(1, world, k, identity=k) for k in range(count)]

    def process(k: int) -> Any:
        try:
            transport: Any = MemoryTransport(hub, k)
            backend = machines[k].backend(patience)
            with Engine(
                plan(strategy).step_programs, backend, transport, deadline=deadline
            ) as made:
                made.load_variables(start_values(made))
                return act(k, made)
        except BaseException as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(process, range(count)))
