"""Tests keep their objects in a folder of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from graphc import config


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHC_CACHE", str(tmp_path_factory.mktemp("cache")))
        config.get.cache_clear()
        yield
    config.get.cache_clear()
