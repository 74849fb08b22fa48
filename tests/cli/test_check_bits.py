"""graphc check --bits: one hash for all."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from backends.cupy.stand_in import StandIn
from cli.conftest import Call
from graphc_cupy import CupyBackend

from graphc.ops import reduce
from graphc.runtime.backends import plugins

ALL = ("--devices", "1,2,3", "--accumulate", "1,2", "--steps", 5)
TWO = ("check", "line.gc", "--bits", "--devices", "2", "--steps", 2)


def rows(call: Call, *args: object) -> list[dict[str, Any]]:
    result = call("check", "line.gc", "--bits", "--json", *args)
    return [json.loads(line) for line in result.out.splitlines()]


def hashes(found: list[dict[str, Any]], backend: str) -> set[str]:
    return {row["hash"] for row in found if row["backend"] == backend and not row["skipped"]}


def test_bits_are_one_hash_for_all(folder: Path, call: Call) -> None:
    result = call("check", "line.gc", "--bits", *ALL)
    *lines, last = result.out.splitlines()
    assert result.status == 0
    assert len(lines) == 7
    assert len({line.split()[1] for line in lines}) == 1
    assert all(line.startswith("ok  ") for line in lines)
    assert last.startswith(f"numpy: 7 runs of 5 steps, one hash: {lines[0].split()[1]}")
    assert lines[0].endswith("1 devices  reproducible(8)")
    assert lines[-1].endswith("3 devices  mirrored(3) * accumulate(2) * reproducible(8)")


def test_every_backend_has_a_hash_of_its_own(folder: Path, call: Call) -> None:
    found = rows(call, "--backend", "reference", "--backend", "numpy", "--devices", "2")
    assert [row["backend"] for row in found] == ["reference"] * 2 + ["numpy"] * 2
    assert len(hashes(found, "numpy")) == len(hashes(found, "reference")) == 1
    assert {row["backend"] for row in rows(call, "--backend", "all")} >= {"numpy", "reference"}


@pytest.fixture
def cupy_stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The backend cupy runs without a GPU."""
    backend = CupyBackend(gpu=lambda: StandIn().gpu, missing=lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr("graphc_cupy.BACKEND", backend)
        plugins._loaded.cache_clear()
        yield
    plugins._loaded.cache_clear()


def test_backends_that_are_named_must_have_one_hash(
    folder: Path, call: Call, cupy_stand_in: None
) -> None:
    result = call(*TWO, "--backend", "numpy", "--backend", "cupy")
    assert result.status == 0, result.err
    last = result.out.splitlines()[-1]
    assert re.fullmatch("numpy, cupy: one hash: [0-9a-f]{64}", last)


def test_backends_that_are_named_and_have_other_bits_fail(folder: Path, call: Call) -> None:
    result = call(*TWO, "--backend", "numpy", "--backend", "reference")
    last = "FAIL numpy, reference: different bits under 2 of 2 strategies"
    assert (result.status, result.out.splitlines()[-1]) == (1, last)
    found = {line.split("one hash: ")[1] for line in result.out.splitlines() if "one hash" in line}
    assert len(found) == 2, "the reference adds in an order of its own"
    result = call(*TWO, "--backend", "numpy", "--backend", "reference", "--json")
    assert (result.status, result.err) == (1, f"{last}\n")


def test_the_number_of_devices_may_change_midway(folder: Path, call: Call) -> None:
    found = rows(call, "--switch", *ALL)
    assert found[-1]["strategy"] == "6 strategies in turn"
    assert len(hashes(found, "numpy")) == 1


def test_tensor_split_gets_the_tiles_that_it_needs(folder: Path, call: Call) -> None:
    args = ("--strategy", "tensor_split({n})", "--strategy", "mirrored(2) * tensor_split({n})")
    found = rows(call, *args, "--devices", "1,2")
    assert "reproducible(8, tiles=2)" in found[0]["strategy"]
    assert len(hashes(found, "numpy")) == 1
    assert all(row["same"] for row in found)


def test_what_does_not_fit_the_grid_is_skipped_with_its_reason(folder: Path, call: Call) -> None:
    result = call("check", "line.gc", "--bits", "--slots", 4, "--devices", "2,4", "--accumulate",
                  "1,2", "--steps", 2)  # fmt: skip
    skipped = [line for line in result.out.splitlines() if line.startswith("skip")]
    assert (result.status, len(skipped)) == (0, 1)
    assert "mirrored(4) * accumulate(2)" in skipped[0] and "4 slots" in skipped[0]


@pytest.mark.parametrize(
    ("words", "args"),
    [
        ("error[G0441]", ("--slots", "2", "--devices", "4")),
        ("error[G0451]", ("--strategy", "tensor_split({n})", "--devices", "3")),
        ("error[G0401]", ("--strategy", "foo({n})")),
        ("error[G0442]", ("--strategy", "local_sgd({n})")),
    ],
)
def test_where_nothing_is_left_it_is_an_error(
    folder: Path, call: Call, words: str, args: tuple[str, ...]
) -> None:
    result = call("check", "line.gc", "--bits", "--steps", 2, *args)
    assert (result.status, words in result.err) == (1, True), result.err


def test_a_strategy_may_bring_its_own_grid(folder: Path, call: Call) -> None:
    found = rows(call, "--strategy", "mirrored({n}) * reproducible(8)", "--devices", "2")
    assert found[-1]["strategy"] == "mirrored(2) * reproducible(8)"


def test_a_difference_is_named_by_its_first_step_and_the_variables(
    folder: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = reduce.tree_sum

    def wrong(parts: Any) -> Any:  # on one device more blocks meet here than on two
        held = list(parts)
        return tree(held) if len(held) < 2 else tree(held) * 1.0000001

    monkeypatch.setattr("graphc.ops.contract.tree_sum", wrong)
    result = call("check", "line.gc", "--bits", "--slots", 1, "--strategy", "tensor_split({n})",
                  "--backend", "reference", "--devices", "2", "--steps", 5)  # fmt: skip
    *_, line, where, last = result.out.splitlines()
    assert (result.status, line[:5]) == (1, "FAIL ")
    assert where.strip() == "differs after step 1: w"
    assert last == "reference: 2 runs of 5 steps, 1 differ from one device"
