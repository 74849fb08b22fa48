"""Variables in a safetensors file, as global values, so that the file does not depend on the mesh.

Notes (strings by name) are in the file's metadata, together with `sha256`, a checksum of all
tensors and notes: a damaged file is an error, never another value. If replicas have copies of their
own, `NAME@copies` contains them all, for a run that resumes with the same number of replicas;
`NAME@before` is the value of a variable before the synchronization at the end of the run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphc.ir.types import DTYPES, dtype_of
from graphc.support.errors import GraphcError
from graphc.support.files import read_whole, write_whole

Array = NDArray[Any]
COPIES, BEFORE = "@copies", "@before"  # what may follow the name of a variable
CHECKSUM = "sha256"


@dataclass(frozen=True)
class Checkpoint:
    """The content of a file: global values by name, and notes."""

    tensors: Mapping[str, Array]
    notes: Mapping[str, str]

    @property
    def values(self) -> dict[str, Array]:
        """The variables."""
        return {name: a for name, a in self.tensors.items() if "@" not in name}

    def beside(self, suffix: str) -> dict[str, Array]:
        """The tensors stored under variables' names with a suffix, by the variables' names."""
        tensors = self.tensors.items()
        return {name.removesuffix(suffix): a for name, a in tensors if name.endswith(suffix)}


def save_variables(
    path: str | Path, values: Mapping[str, Array], notes: Mapping[str, str] | None = None
) -> None:
    """Write variables by name, all or nothing. Raises G0509 if that fails."""
    from safetensors.numpy import save

    # safetensors writes arrays that are not contiguous wrongly (issue 825 of its tracker).
    dense = {name: np.ascontiguousarray(a).reshape(a.shape) for name, a in values.items()}
    written = dict(notes or {})
    content = save(dense, written | {CHECKSUM: _checksum(dense, written)})
    write_whole(path, content, "G0509")


def load_variables(path: str | Path) -> dict[str, Array]:
    """Read the variables in a file. Raises G0509 if it can't be read, or was changed."""
    return read_checkpoint(path).values


def read_checkpoint(path: str | Path, *, foreign: bool = False) -> Checkpoint:
    """Read a file. Raises G0509 if it can't be read, or was changed.

    foreign: also accept a file without a checksum, as other programs write them
    """
    from safetensors import SafetensorError

    content = read_whole(path, "G0509", "variables from ")
    try:
        tensors, notes = _tensors(content), _notes(content)
    except (SafetensorError, *_MALFORMED) as error:
        text = f"can't read variables from {path}: {str(error) or type(error).__name__}"
        raise GraphcError("G0509", text) from None
    said = notes.pop(CHECKSUM, "")
    if not said and not foreign:
        text = f"{path} has no checksum: another program wrote it, or it was changed since"
        help = "to start from its variables without a check: graphc run --load, load(partial=True)"
        raise GraphcError("G0509", text, help=help)
    if said and said != _checksum(tensors, notes):
        text = f"{path} was changed after it was written: its checksum does not match"
        raise GraphcError("G0509", text, help="use another copy of it, or an older checkpoint")
    return Checkpoint(tensors, notes)


def _checksum(tensors: Mapping[str, Array], notes: Mapping[str, str]) -> str:
    """A hash of name, dtype, shape and bytes of all tensors, and of all notes."""
    digest = hashlib.sha256(json.dumps(sorted(notes.items())).encode())
    for name, a in sorted(tensors.items()):
        digest.update(json.dumps(["", name, dtype_of(a.dtype).name, a.shape]).encode())
        digest.update(
            a.astype(a.dtype.newbyteorder("<"), copy=False).reshape(-1).view(np.uint8).data
        )
    return digest.hexdigest()


# -- the format ------------------------------------------------------------------------------------

_NAMES = {"U8": "u8", "BOOL": "bool"}
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


def _tensors(content: bytes) -> dict[str, Array]:
    # Not safetensors.numpy.load: NumPy alone has no bf16, and it knows no other.
    from safetensors import deserialize

    entries = deserialize(content)  # type: ignore[no-untyped-call]
    return {name: _array(entry) for name, entry in entries}


def _array(entry: Mapping[str, Any]) -> Array:
    dtype = DTYPES[_NAMES.get(entry["dtype"], entry["dtype"].lower())].numpy
    return np.frombuffer(entry["data"], dtype.newbyteorder("<")).reshape(entry["shape"]).copy()


def _notes(content: bytes) -> dict[str, str]:
    """The metadata: of these bytes, not of what the file may be by now."""
    size = int.from_bytes(content[:8], "little")
    return dict(json.loads(content[8 : 8 + size]).get("__metadata__") or {})
