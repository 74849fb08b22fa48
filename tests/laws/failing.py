"""Law 9: a step that fails leaves the variables as they were, and the next is as if it had not been.

A random strategy, backend and optimizer; a step that looks rows up and compares labels; and a fault
in the midst of good steps: a wrong index or label somewhere in the batch, a stream that breaks off,
or a device that fails before a random instruction. Beside it a trainer that makes the good steps
only. A fault that comes while variables are written may leave the trainer invalid: then it says so
(G0505), and goes on from what was saved before. Nothing waits for ever.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from graphc_numpy import NumpyBackend
from graphc_numpy.calls.binding import Binding
from laws.configs import ORDERS, SPACES, Config

from graphc.compiler.driver import compile_module
from graphc.frontend.language.load import module_of_source
from graphc.plan.plan import Plan
from graphc.runtime.backends.executor import ProgramRun
from graphc.runtime.checkpoints.saving import Saved
from graphc.runtime.trainer import Trainer
from graphc.strategies import parse_strategy
from graphc.support.errors import GraphcError

Batch = dict[str, Any]
LAST_NET = 3000  # seconds: a case takes one
ROWS, CLASSES = 9, 4
OPTIMIZERS = ("sgd(0.1)", "adagrad(0.1)", "adam(0.1)", "momentum(0.1)", "rmsprop(0.1)")
OTHERS = ("local_sgd(2, 2)", "diloco(2, 2)", "diloco(3, 2) * accumulate(2)",
          "parameter_server(2, 2, staleness=2)", "parameter_server(3, 1, staleness=0)")  # fmt: skip
BACKENDS: dict[str, Any] = {
    "native": NumpyBackend(native=True), "plain": NumpyBackend(native=False),
    "reference": "reference",
}  # fmt: skip
FAULTS = ("index", "label", "stream", "instruction", "instruction")
PROGRAM = """
step s(ids: i32[batch, 2], x: f32[batch, 3], y: i32[batch]) {{
    param e: f32[{rows}, 4] = normal(1.0)
    param w: f32[3, 4]      = normal(1.0)
    param v: f32[4, {classes}] = normal(1.0)
    state seen: i32 = 0

    h = tanh(sum(e[ids], 1) + x @ w)
    seen <- seen + 1
    minimize {loss} with {optimizer}
    report mae = mean(abs(h))
}}
"""
LOSSES = (
    "mean(cross_entropy(h @ v, y))",
    'cross_entropy(h @ v, y, ignore_index=-1, reduction="mean")',
    "sum(square(h @ v)) + sum(cross_entropy(h @ v, y))",
)


class Broken(AssertionError):
    """A case that breaks the law."""


class Planted(Exception):
    """What a device fails with."""


@dataclass(frozen=True)
class Case:
    """One seed's choices. at: where the fault is, as a share of what there is."""

    seed: int
    strategy: str
    backend: str
    optimizer: str
    loss: str
    fault: str
    batch: int
    rank: int
    at: float
    after: int  # good steps before the fault
    short: bool

    @property
    def asynchronous(self) -> bool:
        return "staleness" in self.strategy


def case(seed: int) -> Case:
    """The case of that seed."""
    rng = random.Random(f"failing {seed}")
    config = Config(
        SPACES[seed % len(SPACES)], rng.choice((1, 2, 3, 4)), rng.choice((1, 2, 3)),
        rng.choice(ORDERS), "f32", rng.random() < 0.7, False,
        rng.choice(("accumulate", "tree", "add_n")),
    )  # fmt: skip
    strategy = config.strategy(rng.choice([{"e": 1}, {"e": 0, "v": 1}, {"v": 0}, {}]))
    if rng.random() < 0.15:
        strategy = rng.choice(OTHERS)
    return Case(
        seed, strategy, rng.choice(("native", "native", "plain", "reference")),
        rng.choice(OPTIMIZERS), rng.choice(LOSSES), rng.choice(FAULTS), config.batch,
        rng.randrange(4), rng.random(), rng.randrange(3), rng.random() < 0.3,
    )  # fmt: skip


@lru_cache(maxsize=8)
def plan(strategy: str, optimizer: str, loss: str, batch: int) -> Plan:
    text = PROGRAM.format(rows=ROWS, classes=CLASSES, optimizer=optimizer, loss=loss)
    module = module_of_source(text, "law.gc", {"batch": batch})
    return compile_module(module, parse_strategy(strategy))


def data(c: Case, number: int) -> Batch:
    """A good batch."""
    rng = np.random.default_rng((c.seed, number))
    n = c.batch - 1 if c.short and number % 2 and c.batch > 3 else c.batch
    return {
        "ids": rng.integers(0, ROWS, (n, 2)).astype(np.int32),
        "x": rng.normal(size=(n, 3)).astype(np.float32),
        "y": rng.integers(0, CLASSES, n).astype(np.int32),
    }


# -- the law --------------------------------------------------------------------------------------


def check(c: Case) -> None:
    """Raise Broken unless the case keeps the law."""
    found: list[BaseException | None] = []

    def run() -> None:
        try:
            _check(c)
            found.append(None)
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LAST_NET)
    if not found:
        raise Broken(f"{c}: it waits for ever")
    if found[0] is not None:
        raise Broken(f"{c}: {found[0]}") from found[0]


def _check(c: Case) -> None:
    made = plan(c.strategy, c.optimizer, c.loss, c.batch)
    backend = BACKENDS[c.backend]
    with Trainer(made, backend) as trainer, Trainer(made, backend) as other:
        numbers = iter(range(1000))
        for _ in range(c.after):
            number = next(numbers)
            for each in (trainer, other):
                each.step(data(c, number))
        before, saved, steps = trainer.variables(), trainer.saved(), trainer.steps
        failed = fail(c, trainer)
        if trainer.valid:
            _same(c, before if failed else None, trainer)
            if not failed:
                other.step(data(c, 999))
            elif trainer.steps != steps:
                raise Broken(f"{c}: a step that failed was counted")
        elif c.fault in ("index", "label"):
            raise Broken(f"{c}: what was wrong was noticed after the first write")
        else:
            _refused(c, trainer)
            _restore(c, trainer, saved)
        for _ in range(3):
            number = next(numbers)
            a, b = (each.step(data(c, number)) for each in (trainer, other))
            if any(np.asarray(a[k]).tobytes() != np.asarray(b[k]).tobytes() for k in b):
                raise Broken(f"{c}: after the fault a step reports {a}, not {b}")
        if trainer.valid:
            _same(c, other.variables(), trainer)


def _same(c: Case, wanted: dict[str, Any] | None, trainer: Trainer) -> None:
    found = trainer.variables()
    for name, a in (wanted or {}).items():
        if a.tobytes() != found[name].tobytes():
            raise Broken(f"{c}: '{name}' was {a}, and is {found[name]}")


def _restore(c: Case, trainer: Trainer, saved: Saved) -> None:
    """Variables are enough, but where replicas have copies of their own between two meetings."""
    if saved.copies or c.seed % 2:
        trainer.take_up(saved, f"what was saved before the fault of seed {c.seed}")
    else:
        trainer.load(saved.values)


def _refused(c: Case, trainer: Trainer) -> None:
    for use in (trainer.variables, lambda: trainer.step(data(c, 0))):
        try:
            use()
        except GraphcError as error:
            if error.code == "G0505":
                continue
            raise
        raise Broken(f"{c}: the trainer says that it is not valid, and works")


# -- faults ---------------------------------------------------------------------------------------


def fail(c: Case, trainer: Trainer) -> bool:
    """Make a step that fails; False where the fault hit nothing, so that the step was made."""
    batch, wanted = data(c, 999), "G0506"
    given: Any = batch
    match c.fault:
        case "index":
            ids = batch["ids"].reshape(-1)
            ids[int(c.at * ids.size)] = (ROWS, -ROWS - 1, 2**30)[c.seed % 3]
        case "label":
            y = batch["y"]
            y[int(c.at * len(y))] = (CLASSES, -7, 2**30)[c.seed % 3]
        case "stream" if not c.asynchronous and trainer.plan.mesh.turns > 1:
            given, wanted = broken_stream(batch, trainer.plan.mesh.turns, c.at), ""
        case _:
            return _with_a_device_that_fails(c, trainer, batch)
    try:
        trainer.step(given)
    except GraphcError as error:
        if error.code not in (wanted, "G0503"):
            raise Broken(f"{c}: {error}") from error
        return True
    except Planted:
        return True
    raise Broken(f"{c}: nobody noticed")


def broken_stream(batch: Batch, turns: int, at: float) -> Iterator[Batch]:
    """The microbatches of a batch, of which one does not come."""
    n = len(batch["y"])
    each = -(-n // turns)
    for k in range(turns):
        if k == int(at * turns):
            raise Planted
        yield {name: a[k * each : (k + 1) * each] for name, a in batch.items()}


def _with_a_device_that_fails(c: Case, trainer: Trainer, batch: Batch) -> bool:
    """Count what a device runs, on a copy of the trainer; then fail before one of its calls."""
    calls = max(1, _counted(c, batch))
    try:
        with _failing(trainer, c.rank, int(c.at * calls)):
            trainer.step(batch)
    except Planted:
        return True
    except GraphcError as error:
        if error.code != "G0524":
            raise
        return True
    return False


def _counted(c: Case, batch: Batch) -> int:
    with Trainer(plan(c.strategy, c.optimizer, c.loss, c.batch), BACKENDS[c.backend]) as trainer:
        with _failing(trainer, c.rank, None) as count:
            trainer.step(batch)
        return count.calls


class _failing:
    """While it lasts, a rank fails before its call of that number (None: calls are counted)."""

    def __init__(self, trainer: Trainer, rank: int, at: int | None) -> None:
        devices = _devices(trainer)
        self.device, self.at, self.calls = devices[rank % len(devices)], at, 0
        self._old: tuple[Any, Any] = Binding.perform, ProgramRun.run
        trainer.fast_path = lambda batch: None  # what is injected is met the long way only

    def __enter__(self) -> _failing:
        perform, run = self._old
        Binding.perform = lambda b, calls: perform(b, self._watched(b, calls))  # type: ignore[method-assign]
        ProgramRun.run = lambda r, xs, turn=0: run(r, self._watched(r, xs), turn)  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        Binding.perform, ProgramRun.run = self._old  # type: ignore[method-assign]

    def _watched(self, owner: Binding | ProgramRun, calls: Iterable[Any]) -> Iterator[Any]:
        for call in calls:
            if owner.comm is self.device._comm:
                if self.calls == self.at:
                    self.calls += 1
                    raise Planted
                self.calls += 1
            yield call


def _devices(trainer: Trainer) -> list[Any]:
    engine: Any = trainer.engine
    engines = [x.engine for x in engine.stores] if hasattr(engine, "stores") else [engine]
    return [device for e in engines for _, device in sorted(e._devices.items())]
