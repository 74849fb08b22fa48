"""The cache of compiled objects: its user's alone, and whatever else lies there is no matter."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graphc.support import object_cache
from graphc.support.errors import GraphcWarning
from graphc.support.object_cache import Objects


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_folder_in_one_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    """They could put another folder in its place."""
    base = tmp_path / "open"
    base.mkdir()
    base.chmod(0o777)
    with pytest.warns(GraphcWarning, match="others can write"):
        assert Objects.at(base).folder is None
    base.chmod(0o1777)  # as /tmp: nobody can move what is another's
    assert Objects.at(base).folder is not None


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_the_cache_is_for_its_user_only(tmp_path: Path) -> None:
    object_cache = Objects.at(tmp_path / "new" / "cache")
    object_cache.write("key", b"code")
    made = [object_cache.folder, object_cache.folder.parent] if object_cache.folder else []
    assert [x.stat().st_mode & 0o777 for x in made] == [0o700, 0o700]
    assert [x.stat().st_mode & 0o777 for x in made[0].iterdir()] == [0o600] * 2


def test_an_object_of_another_key_is_not_read(tmp_path: Path) -> None:
    object_cache = Objects.at(tmp_path)
    object_cache.write("a", b"code")
    assert object_cache.folder and object_cache.read("a") == b"code"
    (object_cache.folder / "a.o").rename(object_cache.folder / "b.o")
    assert object_cache.read("b") is None
    (object_cache.folder / "c.o").mkdir()
    assert object_cache.read("c") is None
    object_cache.write("c", b"more")
    assert object_cache.read("c") is None


def test_a_thousand_damaged_objects_are_read_as_none(tmp_path: Path) -> None:
    made, rng = Objects.at(tmp_path), random.Random(0)
    assert made.folder
    content = bytes(range(256)) * 4
    made.write("whole", content)
    whole = (made.folder / "whole.o").read_bytes()
    for k in range(1000):
        data = bytearray(whole.replace(b"whole", b"%05d" % k))
        match k % 5:
            case 0:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            case 1:
                del data[rng.randrange(len(data)) :]
            case 2:
                data[rng.randrange(len(data))] = 10
                data.append(0)
            case 3:
                data = bytearray(rng.randbytes(rng.randrange(300)))
            case _:
                data = data[rng.randrange(1, len(data)) :] + data
        (made.folder / f"{k:05}.o").write_bytes(data)
        assert made.read(f"{k:05}") is None
    assert made.read("whole") == content


@pytest.mark.parametrize(
    "fault",
    [lambda data, key: data.partition(b"\n")[2], lambda data, key: data[-4:] if data else None],
    ids=["no checksum and no key", "no head"],
)
def test_an_object_that_is_taken_as_it_is_is_noticed(
    fault: Callable[[bytes, str], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_cache, "_content", fault)
    with pytest.raises(AssertionError):
        test_a_thousand_damaged_objects_are_read_as_none(tmp_path)


WRITER = """
import sys
from pathlib import Path
from graphc.support.object_cache import Objects
objects = Objects.at(Path(sys.argv[1]))
print("ready", flush=True)
for k in range(10**9):
    objects.write(f"{k % 7}", bytes([k % 251]) * 200_000)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_two_writers_that_are_killed_leave_whole_objects(tmp_path: Path) -> None:
    for seed in range(3):
        command = [sys.executable, "-c", WRITER, str(tmp_path)]
        pipe = subprocess.PIPE
        writers = [subprocess.Popen(command, stdout=pipe, text=True) for _ in range(2)]
        for w in writers:
            assert w.stdout and w.stdout.readline()
        object_cache = Objects.at(tmp_path)
        while object_cache.read("0") is None or len(list(tmp_path.rglob("?.o"))) < 3:
            pass
        for w in writers:
            time.sleep(random.Random(seed).random() / 50)
            w.kill()
            w.communicate()
        found = [object_cache.read(f"{k}") for k in range(7)]
        assert all(x is None or x == x[:1] * 200_000 for x in found) and any(found)
        written = {p.name[0] for p in (tmp_path / "objects").glob("?.o")}
        assert written == {f"{k}" for k, x in enumerate(found) if x}  # none of them is a half


MAKES = """
import sys, time
from pathlib import Path
from graphc.support.object_cache import Objects
cache = Objects.at(Path(sys.argv[1]))
with cache.making("k" * 8):
    if cache.read("k" * 8) is None:
        print("made", flush=True)
        time.sleep(0.5)
        cache.write("k" * 8, b"content")
assert cache.read("k" * 8) == b"content"
"""


@pytest.mark.skipif(sys.platform == "win32", reason="files are not locked there")
def test_an_object_that_several_processes_want_is_made_by_one(tmp_path):
    program = [sys.executable, "-c", MAKES, str(tmp_path)]
    running = [subprocess.Popen(program, stdout=subprocess.PIPE) for _ in range(4)]
    outputs = [process.communicate(timeout=120)[0] for process in running]
    assert [process.returncode for process in running] == [0] * 4
    assert sorted(outputs) == [b""] * 3 + [b"made\n"]
    assert not [*tmp_path.rglob("*.lock")]


def test_all_files_are_looked_at_once_a_share_of_the_limit_and_the_rest_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of blocks of 4,096 bytes, 128 may stay: each fifth that is written has all looked at."""
    looks, sizes, rng = 0, Objects._sizes, random.Random(0)

    def counted(objects: Objects) -> Iterator[tuple[float, int, Path]]:
        nonlocal looks
        looks += 1
        return sizes(objects)

    monkeypatch.setattr(Objects, "_sizes", counted)
    monkeypatch.setattr(os, "fsync", lambda file: None)
    folder, limit = Objects.at(tmp_path).folder, 128 * 4096
    assert folder
    for k in range(200):
        objects = Objects(folder, limit)  # as another process would have it
        objects.write(f"{k}", bytes(rng.randrange(3_000, 3_900)))
        kept = sum(p.stat().st_size for p in folder.glob("*.o"))
        assert kept <= limit + limit // object_cache.SHARE + 4096
    assert looks == 200 // 5
    assert objects.read("199") is not None and objects.read("0") is None


def test_temporary_files_of_processes_that_died_are_dropped(tmp_path: Path) -> None:
    objects = Objects.at(tmp_path)
    assert objects.folder
    for name, age in (("old", 2), ("new", 0.5)):
        (objects.folder / f".{name}").write_bytes(b"half")
        used = time.time() - age * object_cache.STALE
        os.utime(objects.folder / f".{name}", (used, used))
    Objects(objects.folder, limit=100_000).write("a", b"code")  # a block is over a share of it
    assert {p.name for p in objects.folder.iterdir()} == {".new", "a.o"}


COUNTED = """
import sys
from pathlib import Path
from graphc.support.object_cache import Objects
objects = Objects(Path(sys.argv[1]), 1 << 19)
for k in range(100):
    objects.write(f"{sys.argv[2]}-{k}", bytes(8_000))
"""


def test_several_processes_count_together_what_they_write(tmp_path: Path) -> None:
    """Each writes 800 KB, two blocks at a time; 512 KiB and a share of it may stay."""
    folder = Objects.at(tmp_path).folder
    writers = [subprocess.Popen([sys.executable, "-c", COUNTED, f"{folder}", k]) for k in "ab"]
    assert folder and [w.wait() for w in writers] == [0, 0]
    kept = sum(p.stat().st_size for p in folder.iterdir())
    assert (1 << 19) * 0.9 < kept <= (1 << 19) * (1 + 1 / object_cache.SHARE) + 3 * 8192
