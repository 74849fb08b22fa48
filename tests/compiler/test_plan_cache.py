"""Plans on disk: found when nothing has changed, and only then; what else lies there is no matter."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn
from graphc.api import traced_module
from graphc.compiler import driver, plan_cache
from graphc.frontend.module import Duration, Module
from graphc.lowering.program import record_cache
from graphc.lowering.program.codec import encode
from graphc.ops.unary import Tanh
from graphc.strategies import OneDevice, Strategy, parse_strategy
from graphc.support import config, object_cache
from graphc.support.errors import GraphcWarning
from graphc.support.object_cache import Objects

X, Y = np.ones((8, 4), np.float32), np.ones((8, 3), np.float32)


class Counted:
    """How often a module was compiled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times, old = 0, driver.compile_module

        def compile_module(*args: Any, **options: Any) -> Any:
            self.times += 1
            return old(*args, **options)

        monkeypatch.setattr(driver, "compile_module", compile_module)

    def anew(self, run: Callable[[], object]) -> bool:
        """Whether something is compiled when it runs."""
        before = self.times
        run()
        return self.times > before


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with monkeypatch.context() as patch:
        patch.setenv("GRAPHC_CACHE", str(tmp_path))
        config.get.cache_clear()
        object_cache.source_hash.cache_clear()
        forget = object_cache.source_hash.cache_clear
        yield tmp_path
    config.get.cache_clear()
    forget()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def loss(params: Any, batch: Any) -> Any:
    return np.mean((np.tanh(batch["x"] @ params["w"]) - batch["y"]) ** 2)


def other_loss(params: Any, batch: Any) -> Any:
    return np.mean((nn.relu(batch["x"] @ params["w"]) - batch["y"]) ** 2)


def module(rows: int = 8, lr: float = 0.1, of: Callable[..., Any] = loss) -> Module:
    batch = {"x": np.ones((rows, 4), np.float32), "y": np.ones((rows, 3), np.float32)}
    params = {"w": np.ones((4, 3), np.float32)}
    return traced_module(of, params, batch, optimizer=graphc.optim.sgd(lr))[0]


def compiled(m: Module | None = None, strategy: Strategy | None = None, **options: Any) -> Any:
    return plan_cache.compiled(m or module(), strategy or OneDevice(), **options)


def trained() -> tuple[float, bytes]:
    """The loss of two steps, and the bytes of the weights after them."""
    params = {"w": np.full((4, 3), 0.5, np.float32)}
    batch = {"x": X, "y": Y}
    with graphc.compile(loss, params, batch, optimizer=graphc.optim.adam(0.1)) as trainer:
        trainer.step(batch)
        return trainer.step(batch)["loss"], trainer.params["w"].tobytes()


def plan_file(cache: Path) -> Path:
    """The one file that holds a plan."""
    (path,) = (p for p in (cache / "objects").iterdir() if b'"is":"CachedPlan"' in p.read_bytes())
    return path


# -- what is found -------------------------------------------------------------------------------


def test_the_same_module_is_compiled_once(cache: Path, counted: Counted) -> None:
    first, second = compiled(), compiled()
    assert counted.times == 1
    assert second == first


def test_a_plan_that_was_found_trains_as_the_one_that_was_made(
    cache: Path, counted: Counted
) -> None:
    assert trained() == trained()
    assert counted.times == 1


def test_a_program_that_was_not_made_is_compiled_when_it_is_wanted(
    cache: Path, counted: Counted
) -> None:
    made = compiled().programs["evaluate"]
    found = compiled()
    assert counted.times == 1
    assert found.programs["evaluate"] == made
    assert counted.times == 2


def test_nothing_is_kept_without_a_folder(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("GRAPHC_CACHE", "0")
        config.get.cache_clear()
        assert counted.anew(compiled) and counted.anew(compiled)
    config.get.cache_clear()


# -- what is compiled anew -----------------------------------------------------------------------

OTHERS: dict[str, Callable[[], object]] = {
    "shapes": lambda: compiled(module(rows=16)),
    "numbers": lambda: compiled(module(lr=0.2)),
    "function": lambda: compiled(module(of=other_loss)),
    "name": lambda: compiled(replace(module(), name="other")),
    "duration": lambda: compiled(replace(module(), duration=Duration(3))),
    "strategy": lambda: compiled(strategy=parse_strategy("mirrored(2)")),
    "bucket": lambda: compiled(bucket=1 << 20),
    "check_replicas": lambda: compiled(check_replicas=True),
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_change_is_seen(cache: Path, counted: Counted, what: str) -> None:
    compiled()
    assert counted.anew(OTHERS[what])
    assert not counted.anew(OTHERS[what])
    assert not counted.anew(compiled)


def test_another_line_of_the_user_is_seen(cache: Path, counted: Counted) -> None:
    """Errors name lines: those of the file as it was would be wrong."""
    code = (
        "import numpy as np\n{}def f(p, b):\n    return np.mean((b['x'] @ p['w'] - b['y']) ** 2)\n"
    )
    for space in ("", "\n\n"):
        names: dict[str, Any] = {}
        exec(compile(code.format(space), "<step>", "exec"), names)
        assert counted.anew(lambda names=names: compiled(module(of=names["f"])))


def test_other_sources_are_seen(
    cache: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled()
    monkeypatch.setattr(plan_cache, "source_hash", lambda *roots: "other sources")
    assert counted.anew(compiled)


def test_sources_are_files_with_their_lengths_and_times(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    file = tmp_path / "deep" / "a.py"
    file.write_text("x = 1")
    os.utime(file, ns=(1, 1))
    before = list(object_cache.source_files(tmp_path))
    os.utime(file, ns=(2, 2))
    times = list(object_cache.source_files(tmp_path))
    file.write_text("x = 12")
    os.utime(file, ns=(1, 1))
    assert len({*before, *times, *object_cache.source_files(tmp_path)}) == 3


def test_a_source_that_changed_since_the_import_is_found_by_nobody(
    cache: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_cache, "IMPORTED", 0)  # all files are younger
    object_cache.source_hash.cache_clear()
    compiled()
    object_cache.source_hash.cache_clear()  # as in another process
    assert counted.anew(compiled)


@pytest.mark.parametrize("name, value", [("GRAPHC_VERIFY", "0"), ("GRAPHC_DEBUG", "1")])
def test_the_environment_is_seen(
    cache: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    compiled()
    monkeypatch.setenv(name, value)
    config.get.cache_clear()
    assert counted.anew(compiled)


class OwnTanh(Tanh):
    """An op of a user's."""


def test_a_step_with_an_op_of_others_is_not_kept(cache: Path, counted: Counted) -> None:
    m = module()
    nodes = {
        n: replace(x, op=OwnTanh()) if type(x.op) is Tanh else x for n, x in m.train.nodes.items()
    }
    assert nodes != m.train.nodes
    for _ in range(2):
        assert counted.anew(lambda: compiled(replace(m, train=replace(m.train, nodes=nodes))))


# -- what else lies there ------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [b"", b"x" * 10, b"y" * 1000])
def test_a_damaged_file_is_none(cache: Path, counted: Counted, damage: bytes) -> None:
    compiled()
    plan_file(cache).write_bytes(damage)
    assert counted.anew(compiled)
    assert not counted.anew(compiled)


FOREIGN = [
    b"",
    b"\xff\xfe",
    b"{}",
    b"[]",
    b"null",
    b'{"is":"CachedPlan"}',
    b'{"is":"Plan"}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("text", FOREIGN)
def test_a_whole_file_of_another_kind_is_none(cache: Path, counted: Counted, text: bytes) -> None:
    compiled()
    Objects.at(cache).write(plan_file(cache).stem, text)
    assert counted.anew(compiled)


def test_a_plan_under_another_key_is_none(cache: Path, counted: Counted) -> None:
    compiled()
    mine = plan_file(cache)
    compiled(module(rows=16))
    (other,) = (p for p in mine.parent.glob("*.o") if p != mine)
    mine.write_bytes(other.read_bytes())
    assert counted.anew(compiled)


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"is":"Program"}', '{"is":"Program","mesh":3}'])
def test_a_program_that_does_not_read_is_compiled_anew(
    cache: Path, counted: Counted, text: str
) -> None:
    made = compiled().programs["train"]
    path = plan_file(cache)
    record = json.loads(Objects.at(cache).read(path.stem) or b"")
    record["programs"] = [[name, text] for name, _ in record["programs"]]
    Objects.at(cache).write(path.stem, json.dumps(record).encode())
    found = compiled()
    assert counted.times == 1
    assert found.programs["train"] == made
    assert counted.times == 2


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_file_that_others_can_write_is_not_read(cache: Path, counted: Counted) -> None:
    compiled()
    plan_file(cache).chmod(0o666)
    assert counted.anew(compiled)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_folder_that_others_can_write_is_not_used(cache: Path, counted: Counted) -> None:
    compiled()
    (cache / "objects").chmod(0o777)
    with pytest.warns(GraphcWarning, match="others can write to it"):
        assert counted.anew(compiled)
    assert counted.anew(compiled)


def test_several_writers_leave_one_whole_plan(cache: Path, counted: Counted) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: compiled(), range(8)))
    assert all(x.programs["train"] == made[0].programs["train"] for x in made)
    assert plan_file(cache).name in {p.name for p in (cache / "objects").iterdir()}
    assert not counted.anew(compiled)


def test_plans_take_no_more_room_than_there_is(
    cache: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled()
    size = plan_file(cache).stat().st_size
    monkeypatch.setattr(Objects, "__init__", _with_limit(3 * size))
    for rows in range(9, 16):
        compiled(module(rows=rows))
    assert sum(p.stat().st_size for p in (cache / "objects").iterdir()) <= 3 * size
    assert counted.anew(compiled)


def _with_limit(limit: int) -> Callable[..., None]:
    def init(self: Objects, folder: Path | None, _: int = 0) -> None:
        object.__setattr__(self, "folder", folder)
        object.__setattr__(self, "limit", limit)

    return init


def test_a_plan_without_a_json_form_is_used_and_not_kept(
    cache: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(value: Any) -> Any:
        raise TypeError("it has no JSON form")

    assert encode(1) == 1
    monkeypatch.setattr(record_cache, "encode", fails)
    assert counted.anew(compiled) and counted.anew(compiled)
