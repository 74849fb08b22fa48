"""Files of tensors: as the safetensors library writes and reads them, to the bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runtime.checkpoints.values import drawn, same
from safetensors import deserialize
from safetensors.numpy import load_file, save_file

from graphc.runtime.checkpoints.tensor_files import (
    OpenFile,
    header_of,
    stored_tensors,
    write_tensors,
)
from graphc.support.errors import GraphcError


def write(path: Path, values: dict[str, Any], metadata: dict[str, str] | None = None) -> None:
    with open(path, "wb") as file:
        for _ in write_tensors(file.write, values, header_of(values, metadata)):
            pass


@pytest.mark.parametrize("seed", range(3))
def test_tensors_of_every_dtype_are_read_as_they_were_written(seed: int, tmp_path: Path) -> None:
    path, values = tmp_path / "a", drawn(seed)
    write(path, values, {"by": "graphc"})
    found, metadata = stored_tensors(OpenFile(path))
    assert metadata == {"by": "graphc"} and found.keys() == values.keys()
    assert all(same(found[name], a) for name, a in values.items())


def test_the_library_reads_what_is_written(tmp_path: Path) -> None:
    path, values = tmp_path / "a", drawn(0)
    write(path, values)
    entries = dict(deserialize(path.read_bytes()))
    assert {name: bytes(e["data"]) for name, e in entries.items()} == {
        name: np.asarray(a).tobytes() for name, a in values.items()
    }
    assert all(tuple(entries[name]["shape"]) == a.shape for name, a in values.items())
    plain = {name: a for name, a in values.items() if a.dtype.isbuiltin == 1}
    write(path, plain)
    assert all(same(a, plain[name]) for name, a in load_file(path).items())


def test_what_the_library_writes_is_read(tmp_path: Path) -> None:
    values = {n: np.ascontiguousarray(a) for n, a in drawn(1).items() if a.dtype.isbuiltin == 1}
    save_file(values, tmp_path / "a", {"x": "y"})
    found, metadata = stored_tensors(OpenFile(tmp_path / "a"))
    assert metadata == {"x": "y"}
    assert all(same(found[name], a) for name, a in values.items())


def test_the_bytes_depend_on_the_values_only(tmp_path: Path) -> None:
    values = drawn(0)
    write(tmp_path / "a", values, {"b": "1", "a": "2"})
    write(tmp_path / "b", dict(reversed(values.items())), {"a": "2", "b": "1"})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_tensors_are_read_one_by_one_and_stay_readable_without_their_path(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path, {"a": np.arange(5), "b": np.ones(3, np.float32)})
    found, _ = stored_tensors(OpenFile(path))
    path.write_bytes(b"")
    path.unlink()
    write(path, {"a": np.zeros(5)})
    path.unlink()
    with pytest.raises(GraphcError, match="is damaged: in tensor 'a'"):  # it was cut in its place
        found["a"].read()


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, "has 4 bytes, its shape 8"),
        ({"a": {"dtype": "F4", "shape": [2], "data_offsets": [0, 8]}}, "unknown dtype F4"),
        ({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, "no shape or no range"),
        ({"a": {"dtype": "F32", "shape": [True, 2], "data_offsets": [0, 8]}}, "no shape or no"),
        ({"a": {"dtype": "F32", "shape": 2, "data_offsets": [0, 8]}}, "no shape or no range"),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, "a gap before tensor 'a'"),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, "its header says"),
        ({"a": {"dtype": "F32", "shape": [2]}}, "no dtype, shape and range of tensor 'a'"),
        ({"a": 3}, "no dtype, shape and range of tensor 'a'"),
        ([], "no table of tensors"),
        ({"__metadata__": {"a": 1}}, "no table of tensors"),
    ],
)
def test_a_header_that_does_not_describe_the_file_is_refused(
    header: Any, words: str, tmp_path: Path
) -> None:
    text = json.dumps(header).encode()
    (tmp_path / "a").write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    with pytest.raises(ValueError, match=words):
        stored_tensors(OpenFile(tmp_path / "a"))


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "it ends before byte 8"), (bytes(8), "JSON|value"),
     (b"\xff" * 8 + b"{}", "its header is too long"), (b"\2" + bytes(7) + b"{", "its header is too long"),
     ((200_000).to_bytes(8, "little") + b"[" * 200_000, "nested too deeply"),
     (b"\x20" + bytes(7) + b'{"a":{},"a":{}}' + b" " * 17, "two entries of one name")],
)  # fmt: skip
def test_what_is_no_header_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(ValueError, match=words):
        stored_tensors(OpenFile(tmp_path / "a"))


def test_a_dtype_that_files_do_not_have_is_an_error() -> None:
    with pytest.raises(GraphcError, match="no tensors of dtype complex64"):
        header_of({"a": np.zeros(2, np.complex64)})
