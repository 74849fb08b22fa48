"""Shared by the tests of the runtime: sessions of the local transport, and how it exchanges."""

import pytest

from graphc.runtime.transports import rendezvous
from graphc.runtime.transports.local import TRANSPORT


@pytest.fixture(scope="module")
def session():
    """session(n) is an open session of n devices, the same one within a module of tests."""
    opened = {}

    def of(size):
        if size not in opened:
            opened[size] = TRANSPORT.open(size)
        return opened[size]

    yield of
    for one in opened.values():
        one.close()


@pytest.fixture(params=["one rank does it", "in parts"])
def cut(request, monkeypatch):
    """Both ways of an exchange, for arrays of any size."""
    monkeypatch.setattr(rendezvous, "SMALL", -1 if request.param == "in parts" else 1 << 40)
