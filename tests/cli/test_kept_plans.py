"""A second run of a program finds the plan of the first, unless something has changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import PROGRAM, Call

from graphc.compiler import driver
from graphc.support import config


@pytest.fixture
def cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("GRAPHC_CACHE", str(folder / "cache"))
    config.get.cache_clear()
    yield folder
    monkeypatch.undo()
    config.get.cache_clear()


def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of modules that are compiled from here on."""
    old, names = driver.compile_module, list[str]()

    def compile_module(module: Any, *args: Any, **options: Any) -> Any:
        names.append(module.name)
        return old(module, *args, **options)

    monkeypatch.setattr(driver, "compile_module", compile_module)
    return names


def run(call: Call, *options: object) -> dict[str, Any]:
    """The report of a run, without times."""
    result = call("run", "line.gc", "--json", *options)
    assert result.status == 0, result.err
    found = json.loads(result.out.splitlines()[-1])
    return {name: x for name, x in found.items() if "seconds" not in name and "per_s" not in name}


def test_a_second_run_finds_its_plan_and_trains_the_same(
    cache: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = compiled(monkeypatch)
    first = run(call)
    assert names == ["line"]
    assert run(call) == first
    assert names == ["line"]


def test_a_run_of_something_else_compiles(
    cache: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(call)
    names = compiled(monkeypatch)
    for options in (
        ("--strategy", "one_device()"), ("--seed", 1), ("--order", "tree"),
        ("--check-replicas",), ("--bucket-bytes", 8),
    ):  # fmt: skip
        before = len(names)
        run(call, *options)
        assert len(names) == before + 1, options
    before = len(names)
    (cache / "line.gc").write_text(PROGRAM.replace("sgd(0.1)", "sgd(0.2)"))
    run(call)
    assert len(names) == before + 1


def test_compile_always_compiles(cache: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    run(call)
    names = compiled(monkeypatch)
    assert call("compile", "line.gc").status == 0
    assert names == ["line"]
