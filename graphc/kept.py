"""Plans kept on disk: a step that was compiled before, by this graphc, is not compiled again.

A plan is found by a hash of the traced graphs with all their lines, the strategy, what else it was
asked with, and every source of graphc. The file is JSON, as a plan file is; a program in it is read
when it is wanted, and one that was not made when the file was written is compiled when it is.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

from graphc import config
from graphc.collector import collector_paused
from graphc.errors import GraphcError, GraphcWarning
from graphc.later import Later, made
from graphc.module import Module
from graphc.program import Program
from graphc.runtime.codec import Misfit, decode, encode
from graphc.runtime.objects import Objects
from graphc.runtime.plan import Plan, graphc_version
from graphc.strategy import Strategy
from graphc.text import print_ir

FORMAT = 1


@dataclass(frozen=True)
class Kept:
    """What stands in a file. programs: (name, its JSON text), '' where it was not made."""

    key: str
    plan: Plan
    programs: tuple[tuple[str, str], ...]


def compiled(module: Module, strategy: Strategy, **options: Any) -> Plan:
    """`graphc.driver.compile_module`, or what it gave before. It warns as often as it is called:
    a plan that came with a warning is not kept."""

    @cache
    def anew() -> Plan:
        from graphc.driver import compile_module

        return compile_module(module, strategy, **options)

    if config.cache_folder() is None or config.get().watched:
        return anew()
    try:
        key = _key(module, strategy, options)
    except GraphcError:  # something in the graph has no text
        return anew()
    found = _read(key, anew)
    if found is None:
        before = GraphcWarning.count
        found = anew()
        if GraphcWarning.count == before:
            _write(key, found)
    return found


def _write(key: str, plan: Plan) -> None:
    ready = made(plan.programs)
    texts = ((n, _text(encode(ready[n])) if n in ready else "") for n in plan.programs)
    kept = Kept(key, replace(plan, programs={}), tuple(texts))
    Objects.at(config.cache_folder()).write(key, _text(encode(kept)).encode())


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _read(key: str, anew: Callable[[], Plan]) -> Plan | None:
    raw = Objects.at(config.cache_folder()).read(key)
    if raw is None:
        return None
    try:
        kept = decode(Kept, json.loads(raw))
    except (Misfit, GraphcError, ValueError, TypeError, RecursionError):
        return None
    if kept.key != key:
        return None
    waiting = {name: partial(_program, name, text, anew) for name, text in kept.programs}
    return replace(kept.plan, programs=Later({}, waiting))


@collector_paused()
def _program(name: str, text: str, anew: Callable[[], Plan]) -> Program:
    return decode(Program, json.loads(text)) if text else anew().programs[name]


def _key(module: Module, strategy: Strategy, options: Mapping[str, Any]) -> str:
    """A hash of all that a plan depends on. Raises G0907 for a graph without text."""
    graphs = dict.fromkeys((module.train, module.evaluate, module.init))
    digest = hashlib.sha256(f"plan {FORMAT}, graphc {graphc_version()}, {_sources()}\n".encode())
    digest.update(f"{module.name!r} {strategy!r} {sorted(options.items())!r}\n".encode())
    for graph in graphs:
        digest.update(print_ir(graph, locs=True).encode())
    return digest.hexdigest()


@lru_cache(maxsize=1)
def _sources() -> str:
    """The sources of graphc: which they are, how long and how old."""
    text = "\n".join(sorted(_files(Path(__file__).parent)))
    return hashlib.sha256(text.encode()).hexdigest()


def _files(folder: Path) -> Iterator[str]:
    waiting = [str(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    waiting.append(entry.path)
                elif entry.name.endswith((".py", ".lark")):
                    found = entry.stat()
                    yield f"{entry.path} {found.st_size} {found.st_mtime_ns}"
