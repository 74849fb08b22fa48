"""The document about the page: what it shows works."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import transcripts

PAGE = Path(__file__).parents[2] / "spec" / "page.md"


def test_the_pages_of_the_document_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transcripts.workplace(tmp_path, monkeypatch)
    transcripts.check(PAGE, update=False)
    (block,) = transcripts.blocks(PAGE, "python")
    (tmp_path / "step.py").write_text(block.text, encoding="utf-8")
    runpy.run_path(str(tmp_path / "step.py"))
    for name in ("digits.html", "step.html"):
        assert (tmp_path / name).read_text().startswith("<!DOCTYPE html>")
