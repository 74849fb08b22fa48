"""Runs hostile plans, and reads hostile texts of graphs, each in a process of its own, so that a crash or a hang has a seed.

`python attack.py plans|texts FOLDER FIRST LAST` prints a line of JSON for every seed: how its plan ended on
each way to run it. Fine is "refused G05xx", "ran" or another error of the user's; not fine are a
traceback, a signal, and a run that takes too long.
"""

from __future__ import annotations

import json
import os
import pkgutil
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

ROOM = 4 << 30  # bytes of addresses that a run may take
SECONDS = 60  # of processor time, and ten times as many on the clock: machines are busy
WAYS = ("native", "calls", "reference")
FINE = ("refused", "ran", "error")
GROUP = 12  # seeds of a child


def apart(run: Callable[[], str], seconds: int = SECONDS) -> str:
    """What `run` returns in a child process, or how the child ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _limit(seconds)
        try:
            text = run()
        except BaseException:
            text = "TRACEBACK " + traceback.format_exc()
        os.write(writer, text.encode(errors="replace")[-4000:])
        os._exit(0)
    os.close(writer)
    status, late = _waited(child, 10 * seconds)
    with os.fdopen(reader, "rb") as file:
        said = file.read().decode(errors="replace")
    if late:
        return "HANG"
    if os.WIFSIGNALED(status):
        return f"SIGNAL {signal.Signals(os.WTERMSIG(status)).name}"
    return said or f"EXIT {os.waitstatus_to_exitcode(status)}"


def _limit(seconds: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    null = os.open(os.devnull, os.O_RDWR)
    for handle in (0, 1, 2):
        os.dup2(null, handle)


def _waited(child: int, seconds: float) -> tuple[int, bool]:
    """(status, whether it had to be killed)."""
    end = time.monotonic() + seconds
    pause = 0.001
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status, False
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1], True
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def outcome(run: Callable[[], Any]) -> str:
    """'ran', or the error that is the user's. Anything else is raised."""
    from graphc.support.errors import GraphcError, InternalError, VerifyError

    try:
        run()
    except (InternalError, VerifyError) as error:
        return "TRACEBACK " + error.render()
    except GraphcError as error:
        kind = "refused" if error.code == "G0507" else "error"
        return f"{kind} {error.code} {error.message[:300]}"
    return "ran"


def in_one_child(runs: Sequence[Callable[[], str]]) -> list[str]:
    """What each run returns, all in one child; where one of them ends badly, each in its own."""
    if len(runs) > 1:
        said = apart(lambda: "\n".join(run().split("\n")[0][:100] for run in runs)).split("\n")
        if len(said) == len(runs) and all(x.startswith(FINE) for x in said):
            return said
    return [apart(run) for run in runs]


def attack(text: str, folder: Path) -> dict[str, str]:
    """How a plan that is read ends in every way to run it."""
    path = folder / f"{os.getpid()}.plan"
    path.write_text(text)
    found = in_one_child([lambda w=way: outcome(lambda: _run(path, w)) for way in WAYS])  # type: ignore[misc]
    path.unlink()
    return dict(zip(WAYS, found, strict=True))


def _read(text: str) -> None:
    from graphc.plan import plan as plans

    _shown(plans.parse(text))


def _shown(plan: Any) -> None:
    from graphc.lowering.program.listing import print_program

    for program in plan.programs.values():
        print_program(program)


def _run(path: Path, way: str) -> None:
    """What `graphc run PLAN --steps 2` does."""
    from graphc.cli import group
    from graphc.support import config
    from graphc.support.errors import GraphcError

    os.environ["GRAPHC_NATIVE"] = "0" if way == "calls" else "1"
    os.environ["GRAPHC_CACHE"] = str(path.parent / "cache")
    os.environ["GRAPHC_THREADS"] = "2"
    config.get.cache_clear()
    backend = "reference" if way == "reference" else "numpy"
    out = str(path.with_suffix(".safetensors"))
    words = ["run", str(path), "--steps", "2", "--backend", backend, "--json", "--save", out]
    try:
        with group.make_context("graphc", words) as context:
            group.invoke(context)
    except MemoryError:
        raise GraphcError("G0204", "the machine's memory is used up") from None
    finally:
        Path(out).unlink(missing_ok=True)


def attacks(folder: Path, seeds: range) -> Iterator[dict[str, Any]]:
    """Every seed's plan and how it ended."""
    from hostile import corpus
    from hostile.mutate import mutated

    from graphc.plan import plan as plans

    corpus.write_data(folder)
    names = list(corpus.RUNS)
    _import_all()

    @cache
    def text(name: str) -> str:
        found = corpus.plan(name, folder).text()
        plans.parse(found)  # what is looked up once is looked up here
        return found

    def made(seed: int) -> str:
        return mutated(text(names[seed // GROUP % len(names)]), seed)

    for seed, read in _in_groups(seeds, lambda seed: _read(made(seed)), made):
        more = attack(made(seed), folder) if read == "ran" else {}
        yield {"seed": seed, "plan": names[seed // GROUP % len(names)], "read": read} | more


def text_attacks(folder: Path, seeds: range) -> Iterator[dict[str, Any]]:
    """Every seed's text of a graph and how reading, drawing and rewriting it ended."""
    from hostile import corpus
    from hostile.texts import damaged

    _import_all()

    def use(seed: int) -> None:
        _used(damaged(text_of(seed // GROUP), seed), seed)

    def text_of(number: int) -> str:
        names = list(corpus.GRAPHS)
        found = corpus.graphs(names[number % len(names)], folder)
        return found[number // len(names) % len(found)]

    for n, read in _in_groups(seeds, use, lambda seed: text_of(seed // GROUP)):
        yield {"seed": n, "read": read}


def _in_groups(
    seeds: range, use: Callable[[int], None], prepare: Callable[[int], object]
) -> Iterator[tuple[int, str]]:
    """How what is made of each seed ended. prepare: makes here what the children of a group need"""
    for start in range(seeds.start, seeds.stop, GROUP):
        group = range(start, min(start + GROUP, seeds.stop))
        prepare(start)
        runs = [lambda n=seed: outcome(lambda: use(n)) for seed in group]  # type: ignore[misc]
        yield from zip(group, in_one_child(runs), strict=True)


PASSES = ("cse", "dce", "differentiate", "simplify,cse,dce", "fold_constants", "resolve,dce")


def _used(text: str, seed: int) -> None:
    """What `graphc show` and `graphc opt` do with a text."""
    from graphc.compiler import pipeline
    from graphc.inspect.pictures import FORMATS, Level
    from graphc.passes.base import parse_passes
    from graphc.text import print_ir
    from graphc.verify.reading import read_ir

    graph = read_ir(text)
    for form in FORMATS.values():
        for level in (None, Level.VALUES):
            form(graph, level)
    print_ir(pipeline.run_passes(graph, parse_passes(PASSES[seed % len(PASSES)])))


def _import_all() -> None:
    """Import here what children need, so that none of them has to."""
    import graphc_numpy

    import graphc

    for package in (graphc, graphc_numpy):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if ".testing" not in info.name and "__main__" not in info.name:
                import_module(info.name)


def bad(found: dict[str, Any]) -> dict[str, str]:
    """The ways that ended as no plan may."""
    signatures = {k: v for k, v in found.items() if k in ("read", *WAYS)}
    return {k: v for k, v in signatures.items() if not v.startswith(FINE)}


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    kind, where, first, last = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    where.mkdir(parents=True, exist_ok=True)
    made = {"plans": attacks, "texts": text_attacks}[kind]
    for each in made(where, range(first, last)):
        print(json.dumps(each), flush=True)
