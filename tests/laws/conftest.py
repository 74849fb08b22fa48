"""What all laws share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def replay_files_go_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that fails writes a file that replays it, in the working directory."""
    monkeypatch.chdir(tmp_path)
