"""Variables in a file: safetensors, with global values, so that a file knows no topology.

Notes (strings by name) stand beside them in the file's metadata. Where replicas have copies of
their own, `NAME@copies` has them all, for a run that goes on with as many replicas.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphc.errors import GraphcError
from graphc.files import write_whole
from graphc.types import DTYPES

Array = NDArray[Any]
COPIES = "@copies"  # what follows the name of a variable where the file has its copies


def save_variables(
    path: str | Path, values: Mapping[str, Array], notes: Mapping[str, str] | None = None
) -> None:
    """Write variables by name, whole or not at all. Raises G0509 where that fails."""
    from safetensors.numpy import save

    # safetensors writes arrays that are not contiguous wrongly (issue 825 of its tracker).
    dense = {name: np.ascontiguousarray(a).reshape(a.shape) for name, a in values.items()}
    content = save(dense, dict(notes) if notes else None)
    write_whole(path, content, "G0509")


def load_variables(path: str | Path) -> dict[str, Array]:
    """The variables in a file. Raises G0509 where it can't be read."""
    return load_checkpoint(path)[0]


def load_checkpoint(path: str | Path) -> tuple[dict[str, Array], dict[str, str]]:
    """The variables in a file, and its notes. Raises G0509 where it can't be read."""
    values, notes = _read(path)
    return {name: a for name, a in values.items() if not name.endswith(COPIES)}, notes


def load_copies(path: str | Path) -> dict[str, Array]:
    """The copies of variables in a file, by the variables' names. Raises G0509."""
    found = _read(path)[0].items()
    return {name.removesuffix(COPIES): a for name, a in found if name.endswith(COPIES)}


def _read(path: str | Path) -> tuple[dict[str, Array], dict[str, str]]:
    # Not safetensors.numpy.load: NumPy alone has no bf16, and it knows no other.
    from safetensors import SafetensorError, deserialize, safe_open

    try:
        entries = deserialize(Path(path).read_bytes())  # type: ignore[no-untyped-call]
        with safe_open(path, framework="np") as file:
            notes = file.metadata() or {}
        return {name: _array(entry) for name, entry in entries}, notes
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise GraphcError("G0509", f"can't read variables from {path}: {error}") from None


def _array(entry: Mapping[str, Any]) -> Array:
    dtype = DTYPES[_NAMES.get(entry["dtype"], entry["dtype"].lower())].numpy
    return np.frombuffer(entry["data"], dtype.newbyteorder("<")).reshape(entry["shape"]).copy()


_NAMES = {"U8": "u8", "BOOL": "bool"}
