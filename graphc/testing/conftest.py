"""The backend under test, from `--backend NAME`."""

from __future__ import annotations

import pytest

from graphc.runtime.backends import plugins
from graphc.runtime.backends.backend import Backend


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> Backend:
    name = request.config.getoption("--backend")
    loaded = plugins.backend(name)
    reason = loaded.available()
    if reason is not None:
        pytest.skip(f"backend '{name}' can't run here: {reason}")
    return loaded
