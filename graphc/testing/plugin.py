"""The pytest options `--backend NAME` and `--transport NAME`.

This is a plug-in, since a package's conftest is read too late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("graphc")
    group.addoption(
        "--backend", default="numpy", help="the graphc backend to test (graphc.testing)"
    )
    group.addoption(
        "--transport", default="local",
        help="the graphc transport to test, such as mpi, with pytest started by mpiexec",
    )  # fmt: skip
