"""Lowered steps of unusual structure give what NumPy gives, and stay inside their memory."""

from __future__ import annotations

import pytest
from kernels.check import check_structure
from kernels.structures import ALL


@pytest.mark.parametrize("name", ALL)
def test_a_structure_is_what_numpy_says(name: str) -> None:
    check_structure(ALL[name])
