"""The machine is measured in a moment."""

from __future__ import annotations

import pytest
from machine_limits import measured_at_once


@pytest.fixture(autouse=True)
def _measured_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured_at_once(monkeypatch)
