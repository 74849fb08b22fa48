"""Output files: whole or not at all, regular files only, with the rights of the file replaced."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from graphc.support.errors import GraphcError
from graphc.support.files import check_writable, replaced, write_whole

Make = Callable[[Path], object]


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def a_loop(path: Path) -> None:
    path.symlink_to(path)


IRREGULAR: dict[str, Make] = {
    "it is a folder": Path.mkdir,
    "it is a pipe": os.mkfifo,
    "it is a socket": a_socket,
    "it is a device": lambda path: path.symlink_to("/dev/null"),
    "Too many levels": a_loop,
}


@pytest.mark.parametrize("words", IRREGULAR)
@pytest.mark.parametrize("write", [lambda p: write_whole(p, "new", "G0509"),
                                   lambda p: check_writable(p, "G0509")])  # fmt: skip
def test_only_regular_files_are_replaced(
    words: str, write: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    path = Path("out")
    IRREGULAR[words](path)
    before = path.lstat().st_mode
    with pytest.raises(GraphcError, match=f"can't write out: {words}") as error:
        write(path)
    assert (error.value.code, path.lstat().st_mode) == ("G0509", before)
    assert os.listdir() == ["out"]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_the_file_that_it_means_is_replaced(there: bool, tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "other" / "link"
    link.parent.mkdir()
    link.symlink_to("../target")
    if there:
        target.write_text("old")
    write_whole(link, "new")
    assert (link.is_symlink(), target.read_text()) == (True, "new")
    assert os.listdir(link.parent) == ["link"]


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o666])
def test_a_new_file_has_the_rights_of_the_old_one(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    path.chmod(mode)
    with replaced(path) as file:
        (temporary,) = (p for p in tmp_path.iterdir() if p != path)
        assert stat.S_IMODE(temporary.stat().st_mode) & ~mode == 0  # never readable by more
        file.write(b"new")
    assert (stat.S_IMODE(path.stat().st_mode), path.read_text()) == (mode, "new")


def test_a_file_where_none_was_has_the_rights_of_a_plain_open(tmp_path: Path) -> None:
    write_whole(tmp_path / "whole", "new")
    (tmp_path / "plain").write_text("new")
    assert (tmp_path / "whole").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_write_that_fails_half_way_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), replaced(path) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["out"])


def test_a_file_is_on_the_disk_before_it_has_the_name_and_its_folder_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    sync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        events.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        sync(handle)

    def renamed(old: str, new: Path) -> None:
        events.append("rename")
        replace(old, new)

    monkeypatch.setattr("os.fsync", synced)
    monkeypatch.setattr("os.replace", renamed)
    write_whole(tmp_path / "out", "new")
    assert events == ["file", "rename", "folder"]


@pytest.mark.parametrize(
    ("name", "words"),
    [("no/out", "No such file"), ("", "it has no name"), ("a\0b", "null byte"),
     ("file/out", "Not a directory"), ("n" * 300, "File name too long")],
)  # fmt: skip
@pytest.mark.parametrize("write", [lambda p: write_whole(p, "new"), check_writable])
def test_a_name_that_no_file_can_have_is_an_error(
    name: str, words: str, write: Callable[[str], None], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("old")
    with pytest.raises(GraphcError, match=words) as error:
        write(name)
    assert (error.value.code, os.listdir()) == ("G0512", ["file"])


@pytest.mark.skipif(os.name != "posix" or os.getuid() == 0, reason="root may write everywhere")
def test_a_read_only_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    path.chmod(0o444)
    with pytest.raises(GraphcError, match="it is read-only"):
        write_whole(path, "new")
