"""Compile time and memory against nodes and devices: python tests/benchmarks/scale.py

Compiles stacks of dense layers, each size in a process of its own, and prints a table: the nodes of
the training graph as it is run, the CPU seconds that compiling the module took in all (training,
evaluation, short batches, first values), those of reading the file, the peak of the process's
memory, and the size of the training program for 1, 8, 64 and 1,024 devices.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

LAYERS = {1_000: 48, 10_000: 480, 50_000: 2_400}
DEVICES = (1, 8, 64, 1_024)


@dataclass(frozen=True)
class Row:
    """What was measured for one stack."""

    layers: int
    nodes: int
    read_seconds: float
    compile_seconds: float
    peak_mib: float
    instructions: int


def source(layers: int, optimizer: str = "sgd(0.1)") -> str:
    """A stack of dense layers as a .gc program."""
    return f"""
        step stack(x: f32[batch, 16], y: i32[batch]) {{
            h = x
            for i in range({layers}) {{
                param w[i]: f32[16, 16] = he_normal()
                param b[i]: f32[16]     = zeros()
                h = relu(dense(h, w[i], b[i]))
            }}
            minimize mean(cross_entropy(h, y)) with {optimizer}
        }}
    """


def measure(layers: int, strategy: str) -> Row:
    """Compile a stack in this process."""
    from graphc.compiler.driver import compile_module
    from graphc.frontend.language.load import module_of_source
    from graphc.strategies import parse_strategy

    start = time.process_time()
    module = module_of_source(source(layers), sizes={"batch": 2_048})
    read = time.process_time()
    nodes = [0]

    def observe(program: str, step: object, graph: object) -> None:
        if program == "train":
            nodes[0] = len(graph)  # type: ignore[arg-type]

    plan = compile_module(module, parse_strategy(strategy), observe=observe)
    done = time.process_time()
    return Row(
        layers, nodes[0], read - start, done - read,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        len(list(plan.programs["train"].instructions)),
    )  # fmt: skip


def elsewhere(layers: int, strategy: str) -> Row:
    """Measure in a new process."""
    command = [sys.executable, __file__, "--layers", str(layers), "--strategy", strategy]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Row(**json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--layers", type=int, help="measure one stack, and print JSON")
    parser.add_argument("--strategy", default="mirrored(4)")
    parser.add_argument("--most", type=int, default=50_000, help="leave larger graphs out")
    options = parser.parse_args()
    if options.layers is not None:
        print(json.dumps(asdict(measure(options.layers, options.strategy))))
        return
    print("layers    nodes   read s  compile s  us/node   peak MiB")
    for size, layers in LAYERS.items():
        if size <= options.most:
            row = elsewhere(layers, options.strategy)
            micro = row.compile_seconds / row.nodes * 1e6
            print(
                f"{row.layers:6} {row.nodes:8} {row.read_seconds:8.2f} {row.compile_seconds:10.2f} "
                f"{micro:8.0f} {row.peak_mib:10.0f}",
                flush=True,
            )
    print("\ndevices  instructions  compile s")
    for n in DEVICES:
        row = elsewhere(LAYERS[1_000], f"mirrored({n})")
        print(f"{n:7} {row.instructions:13} {row.compile_seconds:10.2f}", flush=True)


if __name__ == "__main__":
    main()
