"""Tests keep their objects in a folder of their own; their devices' memory has nothing beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from guard import guarded_devices

from graphc.support import config


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHC_CACHE", str(tmp_path_factory.mktemp("cache")))
        config.get.cache_clear()
        yield
    config.get.cache_clear()


@pytest.fixture(autouse=True)
def guarded(request: pytest.FixtureRequest) -> Iterator[None]:
    """In front and behind by turns, from test to test."""
    with guarded_devices(front=len(request.node.name) % 2 == 0):
        yield
