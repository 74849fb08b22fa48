"""Which engine runs a plan."""

from __future__ import annotations

from typing import Any

from graphc.plan.plan import Plan
from graphc.runtime.asynchronous.drivers import DriverPlugin
from graphc.runtime.asynchronous.engine import AsynchronousEngine
from graphc.runtime.asynchronous.fit import driver_of
from graphc.runtime.backends.backend import Backend
from graphc.runtime.machine.memory_limits import Limit
from graphc.runtime.synchronous.engine import Engine
from graphc.runtime.transports.transport import Transport


def engine_for(
    plan: Plan, backend: Backend, transport: Transport, deadline: float | None,
    debug_nans: bool | None, limit: Limit | None, driver: str | DriverPlugin,
) -> Engine | AsynchronousEngine:  # fmt: skip
    """The engine of workers and servers, if a plan has them, or that of devices in step."""
    more: dict[str, Any] = {"deadline": deadline, "debug_nans": debug_nans}
    chosen = driver_of(plan, driver)
    if plan.asynchronous is not None:
        return AsynchronousEngine(plan, backend, driver=chosen, **more)
    return Engine(plan.step_programs, backend, transport, joins=plan.joins, limit=limit, **more)
