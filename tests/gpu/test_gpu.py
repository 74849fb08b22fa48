"""Steps on a GPU: the bits of the CPU under every strategy, errors, memory that doesn't grow."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import graphc_cupy
import numpy as np
import pytest
from backends.cupy.steps import batch, engine, trained
from click.testing import CliRunner
from gpu.rows import row

from graphc.cli import group
from graphc.runtime.backends import plugins
from graphc.runtime.backends.backend import Backend
from graphc.support.errors import GraphcError
from graphc.support.units import time_text

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parents[2]
STRATEGIES = [
    "one_device", "accumulate(4)", "mirrored(2)", "mirrored(4)", "mirrored(2) * accumulate(2)",
    "zero(2, stage=2)", "zero(2, stage=3) * accumulate(2)", "tensor_split(2)",
    "central_storage(3)", "parameter_server(2, 1)", "mirrored(2) * reproducible(4)",
    "mirrored(3) * accumulate(2) * reproducible(8)",
]  # fmt: skip
EXAMPLES = ["linear", "digits", "digits_cnn", "autoencoder", "cells", "pages"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_steps_have_the_bits_of_the_cpu(strategy: str, cupy_backend: Backend) -> None:
    batches = [batch(), batch(256, 1), batch(100, 2), batch(256, 3)]
    found = trained(strategy, cupy_backend, batches)
    same = found == trained(strategy, plugins.backend("numpy"), batches)
    row(f"digits, {strategy}", "the CPU's bits" if same else "OTHER BITS than on the CPU")
    assert same


def test_reproducible_steps_have_one_hash_on_any_devices(cupy_backend: Backend) -> None:
    hashes = set()
    for n in (1, 2, 4):
        _, left = trained(f"mirrored({n}) * reproducible(8)", cupy_backend, [batch(), batch(100)])
        hashes.add(hashlib.sha256(b"".join(x for _, x in sorted(left.items()))).hexdigest()[:12])
    row("digits, 1, 2, 4 devices, reproducible(8)", f"hash {', '.join(sorted(hashes))}")
    assert len(hashes) == 1


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_have_the_bits_of_the_cpu(name: str, cupy_backend: Backend) -> None:
    command = ["check", str(ROOT / "examples" / f"{name}.gc"), "--bits", "--steps", "3"]
    command += ["--devices", "1,2", "--backend", "numpy", "--backend", "cupy", "--json"]
    result = CliRunner().invoke(group, command)
    assert result.exit_code == 0, result.output
    hashes = sorted({json.loads(line)["hash"] for line in result.output.splitlines()})
    row(f"graphc check {name}.gc --bits", f"hash {', '.join(x[:12] for x in hashes)}")
    assert len(hashes) == 1


def test_a_step_whose_check_fails_leaves_the_variables(cupy_backend: Backend) -> None:
    wrong = {k: v.copy() for k, v in batch().items()}
    wrong["y"][200] = 10
    with engine("mirrored(2)", cupy_backend) as made:
        before = made.variables()
        with pytest.raises(
            GraphcError, match="label 10 is out of range for 10 classes, in row 200"
        ):
            made.step(wrong)
        assert all(np.array_equal(x, before[n]) for n, x in made.variables().items())
        made.step(batch())


@pytest.mark.alone  # others take memory of the GPU, and slow the steps
def test_a_thousand_steps_take_no_more_memory(cupy_backend: Backend) -> None:
    with engine("mirrored(2)", cupy_backend) as made:
        given = batch()
        for _ in range(10):
            made.step(given)
        before, start = free_bytes(), time.perf_counter()
        for _ in range(1000):
            made.step(given)
        each = (time.perf_counter() - start) / 1000
        after = free_bytes()
    row("digits, mirrored(2), 1,000 steps", f"{time_text(each)} a step")
    assert after >= before


def free_bytes() -> int:
    """Of the GPU."""
    import cupy

    free, _ = cupy.cuda.runtime.memGetInfo()
    return int(free)


def test_the_conformance_suite_passes(cupy_backend: Backend) -> None:
    parallel = ["-n", "8"] if find_spec("xdist") else []
    command = [sys.executable, "-m", "pytest", "--pyargs", "graphc.testing", "-q", *parallel]
    command += ["-p", "no:cacheprovider", "--backend", "cupy"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    row("pytest --pyargs graphc.testing --backend cupy", done.stdout.strip().splitlines()[-1])
    assert done.returncode == 0 and " skipped" not in done.stdout, done.stdout[-6000:]


def test_kernels_touch_no_memory_that_is_not_theirs(cupy_backend: Backend) -> None:
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        row("compute-sanitizer", "NOT RUN: it is not installed")
        pytest.skip("compute-sanitizer is not installed")
    step = [sys.executable, "-m", "graphc", "check", "examples/digits.gc", "--bits", "--steps", "1"]
    step += ["--backend", "cupy", "--strategy", "mirrored(2)"]
    command = [sanitizer, "--tool", "memcheck", "--error-exitcode", "9", *step]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    row("compute-sanitizer --tool memcheck", done.stdout.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout[-6000:]


@pytest.fixture(autouse=True)
def real(request: pytest.FixtureRequest) -> None:
    """Skip, on what stands for cupy, the tests that need the true one."""
    true_ones = "memory", "conformance", "touch"
    stands = graphc_cupy.BACKEND.missing is not graphc_cupy._missing
    if stands and any(word in request.node.name for word in true_ones):
        pytest.skip("cupy itself is needed")
