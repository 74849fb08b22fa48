"""The data is what its README says, and make.py makes it."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import baselines
import numpy as np
import pytest

DATA = Path(__file__).parents[2] / "examples" / "data"
SIZES = {"digits": (1500, 297), "cells": (400, 169), "pages": (1900, 468)}
TABLES = {"wine": (178, 14), "sunspots": (309, 2)}


@pytest.fixture(scope="module")
def make() -> ModuleType:
    """examples/data/make.py as a module."""
    spec = spec_from_file_location("make", DATA / "make.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", SIZES)
def test_readme_states_the_sizes_of_both_parts(name: str) -> None:
    sizes = tuple(len(baselines.arrays(name, part)["y"]) for part in ("train", "test"))
    assert sizes == SIZES[name]
    row = next(
        line
        for line in (DATA / "README.md").read_text(encoding="utf-8").splitlines()
        if line.startswith(f"| `{name}-")
    )
    assert f"| {sizes[0]} + {sizes[1]} |" in row


@pytest.mark.parametrize("name", TABLES)
def test_readme_states_the_sizes_of_tables(name: str) -> None:
    table = np.loadtxt(DATA / f"{name}.csv", delimiter=",", skiprows=1)
    assert table.shape == TABLES[name] and np.isfinite(table).all()
    assert f"| `{name}.csv` | {len(table)} |" in (DATA / "README.md").read_text(encoding="utf-8")


def test_no_held_out_example_is_trained_on() -> None:
    for name, entry in (("digits", "x"), ("cells", "x"), ("pages", "words")):
        rows = {row.tobytes() for row in baselines.arrays(name, "train")[entry]}
        held_out = baselines.arrays(name, "test")[entry]
        shared = sum(row.tobytes() in rows for row in held_out)
        assert shared <= 0.05 * len(held_out), name  # rare words made one word may coincide


def test_pages_are_made_from_this_python(make: ModuleType) -> None:
    if sys.version_info[:3] != (3, 11, 7):
        pytest.skip("the pages are those of CPython 3.11.7")
    made = make.split(make.pages(), train=1900)
    for part in ("train", "test"):
        kept = baselines.arrays("pages", part)
        assert all(np.array_equal(made[part][k], kept[k]) for k in kept)


def test_the_data_is_small() -> None:
    assert sum(f.stat().st_size for f in DATA.iterdir() if f.is_file()) < 250_000
