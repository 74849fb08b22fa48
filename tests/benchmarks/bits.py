"""What the same bits cost: python tests/benchmarks/bits.py

Trains a stack of dense layers with and without `reproducible`, on 1, 2 and 4 devices, and prints
the milliseconds of a step, and their ratio. The two take turns in one process, so that a machine
that is busy slows both; of each the median of all rounds counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median

import numpy as np

from graphc.driver import compile_module
from graphc.frontend.lower import module_of_source
from graphc.runtime.trainer import Trainer
from graphc.strategy import parse_strategy

DEVICES = (1, 2, 4)


def source(width: int) -> str:
    """Three dense layers as a .gc program."""
    return f"""
        step net(x: f32[batch, {width}], y: f32[batch, {width}]) {{
            param w1: f32[{width}, {width}] = he_normal()
            param w2: f32[{width}, {width}] = he_normal()
            param w3: f32[{width}, {width}] = he_normal()
            minimize mse(relu(relu(x @ w1) @ w2) @ w3, y) with sgd(0.01)
        }}
    """


def trainers(args: argparse.Namespace, devices: int, stack: ExitStack) -> Iterator[Trainer]:
    """The fast trainer, and the reproducible one."""
    module = module_of_source(source(args.width), sizes={"batch": args.batch})
    slots = args.slots or devices
    for grid in ("", f" * reproducible(slots={slots})"):
        plan = compile_module(module, parse_strategy(f"mirrored({devices}){grid}"))
        yield stack.enter_context(Trainer(plan, args.backend))


def measure(args: argparse.Namespace, devices: int) -> tuple[float, float]:
    """The median seconds of a step, fast and reproducible."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, args.batch, args.width), np.float32)
    times: tuple[list[float], list[float]] = ([], [])
    with ExitStack() as stack:
        pair = list(trainers(args, devices, stack))
        for number in range(args.rounds + 3):
            for trainer, found in zip(pair, times, strict=True):
                start = time.perf_counter()
                trainer.step({"x": x, "y": y})
                if number >= 3:
                    found.append(time.perf_counter() - start)
    fast, fixed = times
    return median(fast), median(fixed)


def main() -> None:
    parser = argparse.ArgumentParser(description="What the same bits cost.")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument(
        "--slots", type=int, default=0, help="leaves; by default as many as devices"
    )
    parser.add_argument("--backend", default="numpy")
    args = parser.parse_args()
    print("devices  slots  fast ms  reproducible ms  ratio")
    for n in DEVICES:
        fast, fixed = measure(args, n)
        slots = args.slots or n
        print(f"{n:7}  {slots:5}  {1e3 * fast:7.2f}  {1e3 * fixed:15.2f}  {fixed / fast:5.2f}")


if __name__ == "__main__":
    main()
