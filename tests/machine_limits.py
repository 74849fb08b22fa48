"""What the machine can do, measured in a moment, for tests that only need some numbers."""

from __future__ import annotations

import pytest


def measured_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have measurements take milliseconds. For a fixture."""
    from graphc_numpy.native import limits

    for name, value in (("QUICK", 1e4), ("LONG", 2e4), ("WINDOW", 2e4), ("MOST", 1 << 20)):
        monkeypatch.setattr(limits, name, value)
    monkeypatch.setattr(limits, "MIDDLE", ())
