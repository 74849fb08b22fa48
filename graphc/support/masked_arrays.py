"""NumPy's masked arrays, whose hidden entries np.asarray gives as if nothing hid them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

HELP: Final = "give x.filled(0), and ~x.mask as an array of its own; np.where chooses by it"


def hides_entries(x: Any) -> bool:
    """Whether x is a masked array that hides an entry."""
    if type(x) is np.ndarray or not isinstance(x, np.ndarray):
        return False
    return isinstance(x, np.ma.MaskedArray) and bool(np.ma.is_masked(x))
