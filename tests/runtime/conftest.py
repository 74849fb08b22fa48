"""Shared by the tests of the runtime: sessions of the local transport, and how it exchanges."""

import pytest
from runtime.memory_bridge import Played

from graphc.runtime.transports import rendezvous
from graphc.runtime.transports.local import TRANSPORT


@pytest.fixture(scope="module", params=["threads", "processes", "processes of 2 threads"])
def session(request):
    """session(n) is an open session of n devices, the same one within a module of tests."""
    opened = {}

    def of(size):
        if size not in opened:
            opened[size] = opened_as(request.param, size)
        return opened[size]

    yield of
    for one in opened.values():
        one.close()


def opened_as(kind, size):
    each = 2 if kind.endswith("2 threads") and size % 2 == 0 else 1
    if kind == "threads" or size == 1:
        return TRANSPORT.open(size)
    return Played(size, size // each)


@pytest.fixture(params=["one rank does it", "in parts"])
def cut(request, monkeypatch):
    """Both ways of an exchange, for arrays of any size."""
    monkeypatch.setattr(rendezvous, "SMALL", -1 if request.param == "in parts" else 1 << 40)
