"""What all laws share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from guard import guarded_devices


@pytest.fixture(autouse=True)
def replay_files_go_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that fails writes a file that replays it, in the working directory."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def guarded() -> Iterator[None]:
    """Devices that a law runs itself have memory with nothing beside it (see `laws.execute`)."""
    with guarded_devices():
        yield
