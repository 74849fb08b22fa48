"""Tests that need a GPU: `python -m pytest tests/gpu -m gpu`. Without one, they say why they don't
run. At the end, a table of what was measured."""

from __future__ import annotations

import pytest
from gpu.rows import ROWS, printed

from graphc.runtime.backends import plugins
from graphc.runtime.backends.backend import Backend


@pytest.fixture(scope="session")
def cupy_backend() -> Backend:
    """The backend, if it can run here."""
    backend = plugins.backend("cupy")
    reason = backend.available()
    if reason is not None:
        pytest.skip(f"NOTHING WAS TESTED ON A GPU: {reason} (`graphc doctor` says more)")
    return backend


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if ROWS:
        terminalreporter.section("on the GPU")
        for line in printed():
            terminalreporter.write_line(line)
