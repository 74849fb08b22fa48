"""Recorded calls of NumPy's functions as steps of machine code, against NumPy."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from oracle.recorded_calls import Call

import graphc
from graphc.frontend.numpy.trace import record
from graphc.support.errors import GraphcError

TOGETHER = 30  # calls of a step
MOST = 8  # examples of a batch
# Whose results are not told by their operands, or are said to differ: the sign of a NaN, and a
# batch of one example, which is no dim of length 1.
OTHERS = frozenset({"empty_like", "signbit", "can_cast"})
OF_ONE = frozenset({"squeeze"})


def replayed(calls: Iterable[Sequence[Call]]) -> Counter[str]:
    """How many results were compared and differ, on whole arrays and on batches that get shorter.
    Prints what differs."""
    counts = Counter[str]()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        known = [alike for alike in calls if _is_known(alike[0])]
        for batches in (False, True):
            for group in _together(known, batches, counts):
                _run(group, batches, counts)
    return counts


def _is_known(call: Call) -> bool:
    if call.name in OTHERS or call.options.get("dtype") == "e":  # f16 is added up in f16 there
        return False
    try:
        call.made(call.arrays)
    except Exception:
        return False
    return True


def _examples(call: Call) -> int:
    first = call.arrays[0]
    return len(first) if first.ndim else 0


def _is_batch(array: Any, examples: int) -> bool:
    return array.ndim > 0 and len(array) == examples


def _together(
    calls: Iterable[Sequence[Call]], batches: bool, counts: Counter[str]
) -> Iterator[list[Sequence[Call]]]:
    """The calls that can be traced, in groups of one dtype and one number of examples."""

    def key(alike: Sequence[Call]) -> tuple[bool, int]:
        single = any(a.dtype == np.float32 for a in alike[0].arrays)
        return single, _examples(alike[0]) if batches else 0

    traced = [c for c in calls if not batches or 2 <= _examples(c[0]) <= MOST]
    traced = [c for c in traced if _is_traced(c[0], batches, counts)]
    for _, group in groupby(sorted(traced, key=key), key):
        same = [*group]
        yield from (same[i : i + TOGETHER] for i in range(0, len(same), TOGETHER))


def _is_traced(call: Call, batches: bool, counts: Counter[str]) -> bool:
    feeds, n = {f"x{k}": a for k, a in enumerate(call.arrays)}, _examples(call)
    whole = [k for k, a in feeds.items() if not (batches and _is_batch(a, n))]

    def step(params: Any, batch: Any) -> Any:
        return {f"y{k}": y for k, y in enumerate(call.made([batch[x] for x in feeds]))}

    try:
        record(step, {}, feeds, whole=whole)
    except GraphcError as error:
        counts[f"refused {error.code}"] += 1
        return False
    return True


def _run(group: Sequence[Sequence[Call]], batches: bool, counts: Counter[str]) -> None:
    """Run calls as one step; if it can't be made of all of them, half of them at a time."""
    try:
        for call, size, found in list(_results(group, batches)):
            _compare(call, size, found, counts)
    except GraphcError as error:
        if len(group) == 1:
            counts[f"refused {error.code}"] += 1
            return
        half = len(group) // 2
        _run(group[:half], batches, counts)
        _run(group[half:], batches, counts)


def _results(group: Sequence[Sequence[Call]], batches: bool) -> Iterator[tuple[Call, int, Any]]:
    """(a call, how many examples there are of it or -1, what the step gives)"""
    first = [alike[0] for alike in group]
    names = [[f"c{j}x{k}" for k in range(len(c.arrays))] for j, c in enumerate(first)]
    n = _examples(first[0])

    def step(params: Any, batch: Any) -> Any:
        for j, call in enumerate(first):
            for k, y in enumerate(call.made([batch[x] for x in names[j]])):
                graphc.report(f"c{j}y{k}", y)
        return params["w"]

    feeds = {
        x: a for c, xs in zip(first, names, strict=True) for x, a in zip(xs, c.arrays, strict=True)
    }
    whole = tuple(x for x, a in feeds.items() if not (batches and _is_batch(a, n)))
    single = any(a.dtype == np.float32 for a in first[0].arrays)
    start = {"w": np.zeros((), np.float32 if single else np.float64)}
    sgd = graphc.optim.sgd(0.0)
    with graphc.compile(step, start, feeds, optimizer=sgd, whole=whole) as made:
        for k in range(3):  # sets of arrays, or batches that get shorter
            given = first if batches else [alike[min(k, len(alike) - 1)] for alike in group]
            size = max(n - k, 1) if batches else -1
            arrays = [_cut(c.arrays, n, size) for c in given]
            pairs = zip(names, arrays, strict=True)
            reports = made.step({x: a for xs, some in pairs for x, a in zip(xs, some, strict=True)})
            for j, (call, some) in enumerate(zip(given, arrays, strict=True)):
                yield call, size, (some, [v for x, v in reports.items() if x.startswith(f"c{j}y")])


def _cut(arrays: Sequence[Any], examples: int, size: int) -> list[Any]:
    return [a[:size] if size >= 0 and _is_batch(a, examples) else a for a in arrays]


def _compare(
    call: Call, size: int, found: tuple[list[Any], list[Any]], counts: Counter[str]
) -> None:
    arrays, results = found
    try:
        wanted = call.made(arrays)
    except Exception:  # of fewer examples NumPy has none
        return
    if size == 1 and call.name in OF_ONE:
        return
    for y, want in zip(results, wanted, strict=True):
        kind = "whole" if size < 0 else "batches"
        counts[f"compared, {kind}"] += 1
        if text := _difference(np.asarray(y), np.asarray(want), arrays):
            counts[f"differ, {kind}"] += 1
            print(f"{call.form}, {size} examples: {text}\n    {arrays}", flush=True)


def _difference(found: Any, want: Any, arrays: Sequence[Any]) -> str:
    """ "" if they are the same up to rounding in the least dtype. Integers may be wider in NumPy."""
    if found.shape != want.shape:
        return f"has shape {found.shape}, not {want.shape}"
    if want.dtype.kind == "f":
        floats = [a.dtype.itemsize for a in (*arrays, want, found) if a.dtype.kind == "f"]
        sizes = [np.abs(a[np.isfinite(a)]).max(initial=0) for a in arrays if a.dtype.kind in "fiu"]
        allowed = 2e-5 if min(floats) <= 4 else 1e-9
        largest = np.maximum(np.abs(want), max(map(float, sizes), default=0.0))
        same = (found == want) | (np.isnan(found) & np.isnan(want))
        same = same | (np.abs(found - want) <= allowed * largest)
    else:
        same = found == want
    wrong = np.argwhere(~np.asarray(same))
    return f"{len(wrong)} wrong: {found} instead of {want}" if len(wrong) else ""
