"""Plans kept on disk: a step that was compiled before, by this graphc, is not compiled again.

A plan is found by a hash of the module (the traced graphs with all their lines, what it says of
data and duration), the strategy, what else it was asked with, every source of graphc, and the
versions of Python and NumPy. Nothing is kept where there are ops of others: what they do may change
where none of this does. The file is JSON, as a plan file is; a program in it is read
when it is wanted, and one that was not made when the file was written is compiled when it is. A
file that does not read as it should counts as none.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from graphc.frontend.module import Module
from graphc.lowering.program.codec import decode, encode
from graphc.lowering.program.program import Program
from graphc.plan.plan import Plan, graphc_version
from graphc.strategies import Strategy
from graphc.support import config
from graphc.support.errors import GraphcError, GraphcWarning
from graphc.support.gc_pause import collector_paused
from graphc.support.lazy_map import Later, made
from graphc.support.object_cache import Objects, changed
from graphc.text import print_ir

FORMAT = 2
T = TypeVar("T")


@dataclass(frozen=True)
class Kept:
    """What stands in a file. programs: (name, its JSON text), '' where it was not made."""

    key: str
    plan: Plan
    programs: tuple[tuple[str, str], ...]


def compiled(module: Module, strategy: Strategy, **options: Any) -> Plan:
    """`graphc.compiler.driver.compile_module`, or what it gave before. It warns as often as it is
    called:
    a plan that came with a warning is not kept."""

    @cache
    def anew() -> Plan:
        from graphc.compiler.driver import compile_module

        return compile_module(module, strategy, **options)

    if config.cache_folder() is None or config.get().watched:
        return anew()
    if not _is_ours(module):
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
    with suppress(TypeError, RecursionError):  # what has no JSON form is not kept
        texts = ((n, _text(encode(ready[n])) if n in ready else "") for n in plan.programs)
        kept = Kept(key, replace(plan, programs={}), tuple(texts))
        Objects.at(config.cache_folder()).write(key, _text(encode(kept)).encode())


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _read(key: str, anew: Callable[[], Plan]) -> Plan | None:
    raw = Objects.at(config.cache_folder()).read(key)
    if raw is None:
        return None
    kept = _decoded(Kept, raw)
    if kept is None or kept.key != key:
        return None
    waiting = {name: partial(_program, name, text, anew) for name, text in kept.programs}
    return replace(kept.plan, programs=Later({}, waiting))


@collector_paused()
def _program(name: str, text: str, anew: Callable[[], Plan]) -> Program:
    found = _decoded(Program, text) if text else None
    return found if found is not None else anew().programs[name]


def _decoded(kind: type[T], text: str | bytes) -> T | None:
    """The record in a text; None where there is none, whatever may be there instead."""
    try:
        return decode(kind, json.loads(text))
    except Exception:
        return None


def _is_ours(module: Module) -> bool:
    """Whether all ops are of graphc, and so counted among its sources."""
    graphs = {id(g): g for g in (module.train, module.evaluate, module.init)}.values()
    ops = {type(node.op) for graph in graphs for node in graph}
    return all(op.__module__.split(".")[0] == __name__.split(".")[0] for op in ops)


def _key(module: Module, strategy: Strategy, options: Mapping[str, Any]) -> str:
    """A hash of all that a plan depends on. Raises G0907 for a graph without text."""
    graphs = dict.fromkeys((module.train, module.evaluate, module.init))
    made_by = f"graphc {graphc_version()} {_sources()} {sys.version} {np.__version__}"
    digest = hashlib.sha256(f"plan {FORMAT} {made_by} verify {config.get().verify}\n".encode())
    asked = (strategy, module.seed, sorted(options.items()))
    around = (module.name, module.data, module.duration, *asked)
    digest.update(f"{around!r}\n".encode())
    for graph in graphs:
        digest.update(print_ir(graph, locs=True).encode())
    return digest.hexdigest()


@lru_cache(maxsize=1)
def _sources() -> str:
    """The sources of graphc: which they are, how long and how old."""
    text = "\n".join(sorted(_files(Path(__file__).parents[1])))
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
                    yield f"{entry.path} {found.st_size} {found.st_mtime_ns} {changed(found)}"
