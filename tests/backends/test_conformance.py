"""The public conformance suite, on the built-in backends and on packages from outside."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def conformance(backend: str, *folders: Path, plugin: str = "") -> subprocess.CompletedProcess[str]:
    """Run the suite on a backend in a new process, with these folders to import from.

    plugin: of pytest
    """
    command = [sys.executable, "-m", "pytest", "--pyargs", "graphc.testing", "-q"]
    command += ["-p", plugin] if plugin else []
    command += ["-p", "no:cacheprovider", "--backend", backend, "--rootdir", str(HERE)]
    paths = [*map(str, folders), str(ROOT), str(ROOT / "backends")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(command, cwd=HERE, env=env, capture_output=True, text=True, check=False)


def installed(name: str, target: Path) -> Path:
    """Install the package in the folder `name` into `target`, as a user would."""
    source = target / "source"
    subprocess.run(["cp", "-r", str(HERE / name), str(source)], check=True)
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    command += ["--no-index", "--target", str(target / "site"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target / "site"


@pytest.mark.slow  # .ci/run runs the suite besides, on each Python
def test_the_numpy_backend_conforms() -> None:
    done = conformance("numpy")
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_backend_of_gpus_conforms_on_what_stands_for_one() -> None:
    plugin = "backends.cupy.stand_in_backend"
    done = conformance("cupy", HERE.parent, plugin=plugin)
    assert done.returncode == 0 and " skipped" not in done.stdout, done.stdout


@pytest.mark.ci
def test_a_backend_of_another_package_conforms(tmp_path: Path) -> None:
    done = conformance("plain", installed("plain", tmp_path))
    assert done.returncode == 0, done.stdout


def test_a_backend_of_another_package_is_short() -> None:
    lines = (HERE / "plain" / "plain_backend" / "__init__.py").read_text().splitlines()
    assert len(lines) < 150


@pytest.mark.ci
def test_a_wrong_kernel_is_named(tmp_path: Path) -> None:
    done = conformance("wrong", installed("wrong", tmp_path))
    assert done.returncode == 1
    failed = set(re.findall(r"^FAILED [^\[]*\[(.*?)\]", done.stdout, re.MULTILINE))
    assert failed == {"cumsum"}
    assert "backend 'wrong': Cumsum(dim=0) of f32[3,2]: y is" in done.stdout


def test_an_unknown_backend_is_an_error() -> None:
    done = conformance("nothing")
    assert done.returncode != 0
    assert "there is no backend 'nothing'" in done.stdout
