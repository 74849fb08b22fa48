"""A smaller program that fails in the same way."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from laws.programs.judge import ran
from laws.programs.program import Program, Statement

TRIES = 150


def shrunk(program: Program, fails: Callable[[Program], bool]) -> Program:
    """With as few statements, terms, reports and leaves as still fail, after a number of tries."""
    tries = TRIES
    found = True
    while found and tries > 0:
        found = False
        for smaller in _smaller(program):
            if not _runs(smaller):
                continue
            tries -= 1
            if fails(smaller):
                program, found = smaller, True
                break
            if tries <= 0:
                break
    return program


def _runs(program: Program) -> bool:
    """Whether NumPy runs it, for both sizes of the batch."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for n in program.sizes:
                outputs = ran(program, *program.data(n, wide=True))
                if outputs["loss"].ndim or not np.isfinite(outputs["loss"]):
                    return False
    except Exception:
        return False
    return True


def _smaller(p: Program) -> Iterator[Program]:
    """Programs that lack something, the largest steps first."""
    for i in range(len(p.reports)):
        yield replace(p, reports=(*p.reports[:i], *p.reports[i + 1 :])).needed()
    if len(p.loss) > 1:
        for i in range(len(p.loss)):
            yield replace(p, loss=(*p.loss[:i], *p.loss[i + 1 :])).needed()
    params = [x.name for x in p.leaves if x.tree == "params"]
    for w in params:
        least = (Statement("", f"np.sum({w})", (w,)),)
        if p.loss != least:
            yield replace(p, loss=least).needed()
    for i in reversed(range(len(p.statements))):
        s = p.statements[i]
        for other in dict.fromkeys(s.uses):
            yield _without(p, i, other)
    for i, s in enumerate(p.statements):
        yield from (_at(p, i, f"-{x}") for x in dict.fromkeys(s.uses) if len(s.text) > len(x) + 1)
    yield from _shorter(p)


def _without(p: Program, i: int, other: str) -> Program:
    """Statement i left out, and `other` in its place."""
    gone = p.statements[i].name
    return replace(
        p,
        statements=tuple(_renamed(s, gone, other) for j, s in enumerate(p.statements) if j != i),
        loss=tuple(_renamed(s, gone, other) for s in p.loss),
        reports=tuple(dict.fromkeys(other if r == gone else r for r in p.reports)),
    ).needed()


def _at(p: Program, i: int, text: str) -> Program:
    """Another text for statement i."""
    s = p.statements[i]
    uses = tuple(x for x in s.uses if x in text)
    changed = replace(s, text=text, uses=uses)
    return replace(p, statements=(*p.statements[:i], changed, *p.statements[i + 1 :])).needed()


def _renamed(s: Statement, name: str, other: str) -> Statement:
    text = re.sub(rf"\b{name}\b", other, s.text)
    return replace(s, text=text, uses=tuple(other if x == name else x for x in s.uses))


def _shorter(p: Program) -> Iterator[Program]:
    """Fewer examples, and shorter dims."""
    full, short = p.sizes
    if full > 2:
        yield replace(p, sizes=(2, min(short, 1)))
    if short < full:
        yield replace(p, sizes=(full, full))
    for i, leaf in enumerate(p.leaves):
        for d, n in enumerate(leaf.shape):
            for k in (1, 2):
                if n is not None and n > k:
                    shape = (*leaf.shape[:d], k, *leaf.shape[d + 1 :])
                    some = (*p.leaves[:i], replace(leaf, shape=shape), *p.leaves[i + 1 :])
                    yield replace(p, leaves=some)
