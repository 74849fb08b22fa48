"""The page on profiles: its commands print such tables, and its Python block runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import transcripts
from machine_limits import measured_at_once

pytest.importorskip("llvmlite")

PAGE = Path(__file__).parents[2] / "spec" / "profiling.md"
MASKED = re.compile(r"\d+(?:\.\d+)?")


def labels(output: str) -> list[list[str]]:
    """Of each table the labels of its rows, in the order of the alphabet: times differ."""
    tables = output.split("\n\n")[1:]
    found = [[line[64:] for line in table.splitlines()[2:]] for table in tables]
    return [sorted(table) for table in found]


def heads(output: str) -> list[str]:
    """The lines that are no rows, without their numbers."""
    lines = [x for x in output.splitlines() if not x.startswith("  ") or "GFLOP/s" in x]
    return [
        MASKED.sub("#", x).replace("# threads", "# thread") for x in lines if "a thread of" not in x
    ]


@pytest.fixture(autouse=True)
def _measured_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured_at_once(monkeypatch)


def test_the_tables_of_the_page_are_those_of_the_commands(
    update: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transcripts.workplace(tmp_path, monkeypatch)
    text = PAGE.read_text(encoding="utf-8")
    for block in transcripts.blocks(PAGE, "console"):
        ((command, expected),) = transcripts.commands(block)
        got = transcripts.printed(command)
        same = (heads(got), labels(got)) == (heads(expected), labels(expected))
        assert same or update, f"`{command}` prints\n{got}"
        if not same:
            text = text.replace(block.text, f"$ {command}\n{got}")
    PAGE.write_text(text, encoding="utf-8") if update else None


def test_the_python_block_shows_its_own_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = transcripts.blocks(PAGE, "python")
    (printed,) = transcripts.printed_by([block.text], tmp_path / "steps.py")
    assert 'steps.py:7  h = np.maximum(batch["x"] @ params["w1"], 0)' in printed
    assert json.loads((tmp_path / "step.json").read_text())["traceEvents"]
