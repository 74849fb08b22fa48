"""A box of a tensor in a file is read without the rest, and is what a slice of the whole is."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runtime.checkpoints.values import same

from graphc.runtime.checkpoints import boxes
from graphc.runtime.checkpoints.dtype_conversions import ConvertedTensor
from graphc.runtime.checkpoints.tensor_files import (
    JoinedTensor,
    OpenFile,
    StoredTensor,
    TensorInFile,
    TensorInParts,
    header_of,
    stored_tensors,
    write_tensors,
)
from graphc.runtime.checkpoints.weights import TransposedTensor
from graphc.support.errors import GraphcError

SHAPES = ((), (7,), (5, 3), (4, 1, 6), (2, 3, 0), (3, 2000))


def stored(path: Path, values: dict[str, Any]) -> dict[str, StoredTensor]:
    """The values as tensors in a file, each with its checksum."""
    import zlib

    with open(path, "wb") as file:
        sums = {n: zlib.crc32(x) for n, x in write_tensors(file.write, values, header_of(values))}
    found = stored_tensors(OpenFile(path))[0]
    return {name: replace(tensor, crc=sums[name]) for name, tensor in found.items()}


def drawn_box(shape: tuple[int, ...], pick: random.Random) -> tuple[slice, ...]:
    ends = [sorted(pick.choices(range(n + 1), k=2)) for n in shape]
    whole = pick.random() < 0.3
    return tuple(
        slice(0, n) if whole and d else slice(*e)
        for d, (n, e) in enumerate(zip(shape, ends, strict=True))
    )


def in_parts(path: Path, value: Any, unread: bool) -> TensorInFile:
    """A tensor that is in two parts, cut along its last dim."""
    at = value.shape[-1] // 2
    found = stored(path, {"a": value[..., :at].copy(), "b": value[..., at:].copy()})
    parts = [replace(t, checked=not unread) for t in (found["a"], found["b"])]
    begin = (0,) * (value.ndim - 1)
    return TensorInParts(
        value.dtype, value.shape, (((*begin, 0), parts[0]), ((*begin, at), parts[1]))
    )


MADE: dict[str, Callable[[Path, Any], TensorInFile]] = {
    "stored": lambda path, a: stored(path, {"a": a})["a"],
    "unchecked": lambda path, a: replace(stored(path, {"a": a})["a"], checked=False),
    "parts": lambda path, a: in_parts(path, a, False) if a.ndim else stored(path, {"a": a})["a"],
    "unchecked parts": lambda path, a: in_parts(path, a, True) if a.ndim else stored(path, {"a": a})["a"],
    "converted": lambda path, a: ConvertedTensor(np.dtype("f8"), a.shape, stored(path, {"a": a})["a"]),
    "turned": lambda path, a: TransposedTensor(a.dtype, a.shape[::-1], stored(path, {"a": a})["a"]),
}  # fmt: skip


@pytest.mark.parametrize("block", [64, 1 << 20])
@pytest.mark.parametrize("made", MADE)
def test_a_box_is_a_slice_of_the_whole(
    made: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boxes, "BLOCK", block)
    monkeypatch.setattr(boxes, "PAGE", block // 8)
    pick = random.Random(made)
    for shape in SHAPES:
        value = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        tensor = MADE[made](tmp_path / "a", value)
        for _ in range(12):
            box = drawn_box(tensor.shape, pick)
            assert same(tensor.read_box(box), tensor.read()[box]), (shape, box)


@pytest.mark.parametrize("how", ["sum", "mean", "only_first_replica"])
def test_a_box_of_joined_copies_has_the_bits_of_the_whole(how: str, tmp_path: Path) -> None:
    copies = np.random.default_rng(0).normal(size=(19, 5, 4)).astype(np.float32)
    tensor = JoinedTensor(copies.dtype, (5, 4), stored(tmp_path / "a", {"a": copies})["a"], how)
    for rows in range(6):
        for columns in range(5):
            box = slice(0, rows), slice(4 - columns, 4)
            assert same(tensor.read_box(box), tensor.read()[box])


class Counted(OpenFile):
    """Counts the bytes that are read."""

    read = 0

    def read_into(self, start: int, memory: memoryview) -> bool:
        self.read += len(memory)
        return super().read_into(start, memory)


def test_no_more_is_read_than_a_box_has(tmp_path: Path) -> None:
    tensor = stored(tmp_path / "a", {"a": np.arange(64 * 4096.0).reshape(64, 4096)})["a"]
    for box, entries in (((slice(8, 24), slice(0, 4096)), 16 * 4096),
                         ((slice(0, 64), slice(1024, 2048)), 64 * 1024),
                         ((slice(3, 5), slice(7, 9)), 2 * 4096)):  # fmt: skip
        file = Counted(tmp_path / "a")
        replace(tensor, file=file).read_box(box)
        assert file.read == 8 * entries


def test_what_nobody_has_checked_is_checked_with_the_rest(tmp_path: Path) -> None:
    value = np.arange(60.0).reshape(6, 10)
    tensor = stored(tmp_path / "a", {"a": value})["a"]
    content = bytearray((tmp_path / "a").read_bytes())
    content[-1] ^= 1
    (tmp_path / "a").write_bytes(content)
    damaged = replace(tensor, file=OpenFile(tmp_path / "a"))
    box = slice(0, 2), slice(0, 10)
    assert same(damaged.read_box(box), value[:2])
    with pytest.raises(GraphcError, match="is damaged: in tensor 'a'"):
        replace(damaged, checked=False).read_box(box)


@pytest.mark.parametrize("checked", [True, False])
def test_a_file_that_has_become_shorter_is_an_error(checked: bool, tmp_path: Path) -> None:
    tensor = replace(stored(tmp_path / "a", {"a": np.ones((6, 10))})["a"], checked=checked)
    with open(tmp_path / "a", "r+b") as file:
        file.truncate(200)
    for box in ((slice(2, 6), slice(0, 10)), (slice(2, 6), slice(3, 4))):
        with pytest.raises(GraphcError, match="is damaged: in tensor 'a'"):
            tensor.read_box(box)
