"""A checkpoint as a folder: whole or refused, with the name of the file and the tensor."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runtime.checkpoints.values import drawn, is_of, notes, same, values, write, writer
from safetensors.numpy import load_file

from graphc.runtime.checkpoints.checkpoint import Checkpoint
from graphc.runtime.checkpoints.folder import Portion, read_folder
from graphc.runtime.checkpoints.manifest import MANIFEST, _sealed
from graphc.support.errors import GraphcError

TENSORS = "tensors-0.safetensors"


def refused(folder: Path) -> str:
    with pytest.raises(GraphcError) as error:
        is_of(folder, 3)
    assert error.value.code == "G0509"
    return error.value.render()


def test_a_folder_has_what_was_saved_and_nothing_else_is_left(tmp_path: Path) -> None:
    folder = write(tmp_path, 3)
    assert (folder, os.listdir(tmp_path)) == (tmp_path / "step-00000003", ["step-00000003"])
    assert sorted(os.listdir(folder)) == [MANIFEST, TENSORS]
    assert is_of(folder, 3)
    assert all(same(a, values(3)[name]) for name, a in load_file(folder / TENSORS).items())


def test_tensors_of_every_dtype_come_back_to_the_bit(tmp_path: Path) -> None:
    want = drawn(0)
    folder = writer(tmp_path, 1).write(Portion.whole(Checkpoint(want, notes(1))))
    found = read_folder(folder)[0].tensors
    assert found.keys() == want.keys() and all(same(found[n], a) for n, a in want.items())


def test_a_name_that_is_taken_gets_a_number_and_what_has_it_stays(tmp_path: Path) -> None:
    first = write(tmp_path, 3, run="other")
    before = {p: p.read_bytes() for p in first.iterdir()}
    assert write(tmp_path, 3).name == "step-00000003.2"
    (tmp_path / "step-00000004").write_text("mine")
    assert write(tmp_path, 4).name == "step-00000004.2"
    (tmp_path / "step-00000005").symlink_to("nowhere")
    assert write(tmp_path, 5).name == "step-00000005.2"
    assert {p: p.read_bytes() for p in first.iterdir()} == before
    assert (tmp_path / "step-00000004").read_text() == "mine"


# -- damage ----------------------------------------------------------------------------------------


def test_a_tensor_that_was_changed_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path, 3)
    path = folder / TENSORS
    content = path.read_bytes()
    path.write_bytes(content[:-5] + bytes([content[-5] ^ 1]) + content[-4:])
    assert f"{path} is damaged: in tensor 'w.m'" in refused(folder)
    path.write_bytes(content[:-5])
    assert f"{path} is damaged: in tensor 'w.m'" in refused(folder)
    path.write_bytes(content + b"\0")
    assert f"{path} is damaged: its checksum does not match" in refused(folder)
    path.write_bytes(content[:9] + b"x" + content[10:])
    said = refused(folder)
    assert f"{path} is damaged: in its header" in said
    assert "it has the tensors b, seen, w, w.m" in said


def test_a_file_that_is_missing_is_named_with_its_tensors(tmp_path: Path) -> None:
    folder = write(tmp_path, 3)
    (folder / TENSORS).unlink()
    said = refused(folder)
    assert f"can't read variables from {folder / TENSORS}: No such file" in said
    assert "it has the tensors b, seen, w, w.m" in said
    (folder / MANIFEST).unlink()
    assert f"can't read variables from {folder / MANIFEST}: No such file" in refused(folder)


@pytest.mark.parametrize("name", [TENSORS, MANIFEST])
def test_links_are_not_followed(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path, 3)
    os.rename(folder / name, tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    assert f"{folder / name}: it is a link" in refused(folder)


@pytest.mark.parametrize("name", [TENSORS, MANIFEST])
def test_what_has_no_end_is_not_read(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path, 3)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert f"{folder / name}: it is a pipe" in refused(folder)


@pytest.mark.skipif(os.name != "posix" or os.getuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", [TENSORS, MANIFEST, "."])
def test_what_may_not_be_read_is_named(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path, 3)
    (folder / name).chmod(0)
    assert "Permission denied" in refused(folder)
    (folder / name).chmod(0o700)


def retold(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the manifest, with a checksum that is right again."""
    body = json.loads((folder / MANIFEST).read_text())
    body.pop("sha256")
    change(body)
    (folder / MANIFEST).write_bytes(_sealed(body))


def part(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = body["tensors"]["w"]["parts"][0]
    return found


CHANGES: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("a newer graphc (9.9) wrote it, in format 2; this one reads format 1",
     lambda body: body.update(version=2, graphc="9.9", files=None)),
    ("it is not the manifest of a checkpoint", lambda body: body.update(format="other")),
    ("'../a.safetensors' is not the name of a file", lambda body: part(body).update(file="../a.safetensors")),
    ("'/a.safetensors' is not the name of a file", lambda body: body["files"].update({"/a.safetensors": {}})),
    ("is not the name of a file", lambda body: part(body).update(file="a/b.safetensors")),
    ("is not the name of a file", lambda body: part(body).update(file="..\\b.safetensors")),
    ("tensor 'w' is in b.safetensors, which it does not list", lambda body: part(body).update(file="b.safetensors")),
    ("the parts of tensor 'w' are not the whole of it", lambda body: part(body).update(offset=[1, 0])),
    ("the parts of tensor 'w' are not the whole of it", lambda body: body["tensors"]["w"].update(parts=[])),
    ("the parts of tensor 'w' are not the whole of it", lambda body: body["tensors"]["w"].update(shape=[5])),
    ("does not have tensor 'w' as the manifest says", lambda body: part(body).update(name="w.m")),
    ("does not have tensor 'w' as the manifest says", lambda body: part(body).update(name="none")),
    ("is damaged: in tensor 'w'", lambda body: part(body).update(crc32=5)),
    ("it lacks what a manifest has", lambda body: body.pop("notes")),
    ("is not the name of a run", lambda body: body.update(run="../x")),
    ("it lacks what a manifest has", lambda body: body.update(number=-1)),
    ("it lacks what a manifest has", lambda body: body["tensors"]["w"].update(dtype="X")),
    ("it lacks what a manifest has", lambda body: body["notes"].update(steps=3)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "change"), CHANGES, ids=lambda x: x if isinstance(x, str) else ""
)
def test_a_manifest_that_says_something_else_is_refused(
    words: str, change: Callable[[dict[str, Any]], Any], tmp_path: Path
) -> None:
    folder = write(tmp_path, 3)
    retold(folder, lambda body: None)
    assert is_of(folder, 3)
    retold(folder, change)
    assert words in refused(folder)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"3", b"[" * 100_000, b"\xff\xfe", b"null"])
def test_what_is_no_manifest_is_refused(text: bytes, tmp_path: Path) -> None:
    folder = write(tmp_path, 3)
    (folder / MANIFEST).write_bytes(text)
    assert "can't read the checkpoint" in refused(folder)


def changed(folder: Path, into: Path, seed: int, cut: bool) -> str:
    """Copy a checkpoint with one bit flipped, or cut, and fail if that is not noticed; the name of
    the file."""
    rng = random.Random(seed)
    name = rng.choice((TENSORS, MANIFEST))
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(folder, into)
    content = bytearray((into / name).read_bytes())
    if cut:
        del content[rng.randrange(len(content)) :]
    else:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    (into / name).write_bytes(content)
    with pytest.raises(GraphcError) as error:
        read_folder(into)
    assert error.value.code == "G0509", seed
    assert str(into / name) in error.value.message, (seed, error.value.message)
    return name


@pytest.mark.parametrize(
    ("flips", "cuts"), [(1_000, 400), pytest.param(10_000, 4_000, marks=pytest.mark.slow)]
)
def test_every_flipped_bit_and_every_cut_is_noticed(flips: int, cuts: int, tmp_path: Path) -> None:
    folder = write(tmp_path, 3)
    found = {changed(folder, tmp_path / "copy", seed, False) for seed in range(flips)}
    found |= {changed(folder, tmp_path / "copy", seed, True) for seed in range(cuts)}
    assert found == {TENSORS, MANIFEST}
