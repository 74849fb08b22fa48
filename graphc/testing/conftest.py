"""The backend and the transport under test, from `--backend NAME` and `--transport NAME`."""

from __future__ import annotations

import pytest

from graphc.runtime.backends import plugins
from graphc.runtime.backends.backend import Backend
from graphc.runtime.transports.transport import Transport
from graphc.testing.running import TRANSPORT


@pytest.fixture(scope="session", autouse=True)
def transport(request: pytest.FixtureRequest) -> Transport:
    transport = plugins.transport(request.config.getoption("--transport"))
    reason = transport.available()
    if reason is not None:
        pytest.skip(f"transport '{transport.name}' can't run here: {reason}")
    transport.processes()  # it joins the job before the first test
    TRANSPORT.append(transport)
    return transport


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> Backend:
    name = request.config.getoption("--backend")
    loaded = plugins.backend(name)
    reason = loaded.available()
    if reason is not None:
        pytest.skip(f"backend '{name}' can't run here: {reason}")
    return loaded
