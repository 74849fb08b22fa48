"""Sorting, scans and indexed sums beside other systems: python tests/benchmarks/lines.py

Runs one op at a time, as a step that writes its result to a variable, in graphc, NumPy and whatever
of JAX and torch is installed, each in a process of its own on one core. They take turns. Printed are
the median microseconds (of the processor) that the op takes, and graphc's over the best of the
others. `gradient` is a step of SGD whose loss is a weighted sum of the op's result.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import cycle
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
from turns import Runner, asked, environment, say, start, timed


@dataclass(frozen=True)
class Case:
    """run: (words of a system, arrays by name) -> the result. param: the one that a gradient is
    taken of. order: whether the result is an order of indices."""

    arrays: Callable[[np.random.Generator], dict[str, Any]]
    run: Callable[[Any, Any], Any]
    param: str = ""
    order: bool = False

    def made(self) -> dict[str, Any]:
        return self.arrays(np.random.default_rng(0))


# -- the cases ----------------------------------------------------------------------------------------


def numbers(r: np.random.Generator, dtype: str, *shape: int) -> Any:
    """Of the normal distribution, or whole ones of which some are equal."""
    if dtype[0] == "f":
        return r.standard_normal(shape).astype(dtype)
    return r.integers(-(10**6), 10**6, shape).astype(dtype)


def _cases() -> Iterator[tuple[str, Case]]:
    for dtype, (n, m) in (
        ("f4", (16, 16)), ("f4", (512, 256)), ("i4", (512, 256)), ("i8", (512, 256)),
        ("f4", (64, 2048)), ("f4", (1, 100_000)), ("i4", (1, 100_000)), ("i8", (1, 100_000)),
    ):  # fmt: skip
        x = lambda r, dtype=dtype, n=n, m=m: {"x": numbers(r, dtype, n, m)}  # noqa: E731
        named = f"{dtype} {n}x{m}"
        yield f"sort {named}", Case(x, lambda f, a: f.sort(a["x"]))
        yield f"argsort {named}", Case(x, lambda f, a: f.argsort(a["x"]), order=True)
        yield f"cumsum {named}", Case(x, lambda f, a: f.cumsum(a["x"], 1))
        if dtype == "f4":
            yield f"sort gradient {named}", Case(x, lambda f, a: f.sort(a["x"]), "x")
            yield f"cumsum gradient {named}", Case(x, lambda f, a: f.cumsum(a["x"], 1), "x")
    for dtype in ("f4", "i4", "i8"):
        x = lambda r, dtype=dtype: {"x": numbers(r, dtype, 512, 256)}  # noqa: E731
        yield f"cumsum axis 0 {dtype} 512x256", Case(x, lambda f, a: f.cumsum(a["x"], 0))
    for n, m, k in ((512, 256, 8), (64, 10_000, 16)):
        x = lambda r, n=n, m=m: {"x": numbers(r, "f4", n, m)}  # noqa: E731
        yield f"top {k} f4 {n}x{m}", Case(x, lambda f, a, k=k: f.top(a["x"], k))
    yield from _indexed()
    for n, m in ((16, 64), (512, 1024)):
        x = lambda r, n=n, m=m: {"x": numbers(r, "f4", n, m)}  # noqa: E731
        yield f"dropout f4 {n}x{m}", Case(x, lambda f, a: f.dropout(a["x"]))
        yield f"dropout gradient f4 {n}x{m}", Case(x, lambda f, a: f.dropout(a["x"]), "x")


def _indexed() -> Iterator[tuple[str, Case]]:
    for dtype, rows, width, count in (
        ("f4", 64, 8, 32), ("f4", 1000, 64, 256), ("f4", 1000, 64, 8192), ("i4", 1000, 64, 8192),
        ("i8", 1000, 64, 8192), ("f4", 20_000, 64, 8192), ("f4", 1024, 1, 65_536),
        ("i4", 1024, 1, 65_536), ("f4", 100_000, 1, 65_536),
    ):  # fmt: skip

        def both(r: Any, dtype: str = dtype, n: int = rows, w: int = width, k: int = count) -> Any:
            rest = (w,) if w > 1 else ()
            ids = r.integers(0, n, k).astype(np.int32)
            return {"x": numbers(r, dtype, n, *rest), "i": ids, "u": numbers(r, dtype, k, *rest)}

        named = f"{dtype} {rows}x{width} at {count}"
        yield f"add_at {named}", Case(both, lambda f, a: f.add_at(a["x"], a["i"], a["u"]))
        yield f"lookup {named}", Case(both, lambda f, a: f.lookup(a["x"], a["i"]))
        if dtype == "f4":
            yield f"lookup gradient {named}", Case(both, lambda f, a: f.lookup(a["x"], a["i"]), "x")
    for n, m, k in ((16, 16, 4), (512, 256, 64), (8192, 32, 1), (64, 10_000, 1000)):

        def along(r: Any, n: int = n, m: int = m, k: int = k) -> Any:
            return {"x": numbers(r, "f4", n, m), "i": r.integers(0, m, (n, k)).astype(np.int32)}

        named = f"f4 {n}x{m} at {k}"
        yield f"take_along {named}", Case(along, lambda f, a: f.take_along(a["x"], a["i"]))
        run = lambda f, a: f.take_along(a["x"], a["i"])  # noqa: E731
        yield f"take_along gradient {named}", Case(along, run, "x")
    for dtype, n, k in (("f4", 16, 1024), ("f4", 1000, 65_536), ("i4", 1000, 65_536),
                        ("i8", 1000, 65_536), ("f4", 100_000, 65_536)):  # fmt: skip

        def sought(r: Any, dtype: str = dtype, n: int = n, k: int = k) -> Any:
            return {"x": np.sort(numbers(r, dtype, n)), "v": numbers(r, dtype, k)}

        yield (
            f"searchsorted {dtype} {n} of {k}",
            Case(sought, lambda f, a: f.search(a["x"], a["v"])),
        )


CASES = dict(_cases())


# -- the systems --------------------------------------------------------------------------------------


def _numpy_words() -> Any:
    def add_at(x: Any, i: Any, u: Any) -> Any:
        y = x.copy()
        np.add.at(y, i, u)
        return y

    draw = np.random.default_rng(0)
    return SimpleNamespace(
        sort=lambda x: np.sort(x, axis=1), argsort=lambda x: np.argsort(x, axis=1, kind="stable"),
        cumsum=lambda x, axis: np.cumsum(x, axis=axis, dtype=x.dtype), add_at=add_at,
        top=lambda x, k: np.sort(np.partition(x, -k, axis=1)[:, -k:], axis=1),
        lookup=lambda x, i: x[i], take_along=lambda x, i: np.take_along_axis(x, i, axis=1),
        search=np.searchsorted,
        dropout=lambda x: np.where(draw.random(x.shape, np.float32) < 0.9, x * np.float32(1 / 0.9), 0),
    )  # fmt: skip


def numpy_step(case: Case) -> Callable[[], Any] | None:
    if case.param:
        return None
    a, f = case.made(), _numpy_words()
    return lambda: case.run(f, a)


def graphc_step(case: Case) -> Callable[[], Any]:
    import graphc

    def add_at(x: Any, i: Any, u: Any) -> Any:
        y = x + 0
        np.add.at(y, i, u)
        return y

    f = _numpy_words()
    f.add_at, f.dropout = add_at, lambda x: graphc.nn.dropout(x, 0.1)
    f.argsort, f.top = lambda x: np.argsort(x, axis=1), lambda x, k: np.sort(x, axis=1)[:, -k:]
    a = case.made()
    result = case.run(_numpy_words(), a)
    if not case.param:
        dtype = np.int32 if case.order else result.dtype
        state = {"y": np.zeros(result.shape, dtype)}

        def op(p: Any, s: Any, b: Any) -> Any:
            return p["w"], {"y": case.run(f, b)}  # a step minimizes something

        first = {"w": np.zeros((), np.float32)}
        made = graphc.compile(
            op, first, a, state=state, optimizer=graphc.optim.sgd(0.0), whole=("*",)
        )
        return lambda: made.step(a)
    weights = np.ones(result.shape, np.float32)
    batch = {n: x for n, x in a.items() if n != case.param} | {"c": weights}

    def loss(p: Any, b: Any) -> Any:
        return np.sum(case.run(f, {**p, **b}) * b["c"])

    made = graphc.compile(
        loss, {case.param: a[case.param]}, batch, optimizer=graphc.optim.sgd(0.01), whole=("*",)
    )
    return lambda: made.step(batch)


def jax_step(case: Case) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    key = [jax.random.key(0)]

    def dropout(x: Any) -> Any:
        key[0], now = jax.random.split(key[0])
        return jnp.where(jax.random.bernoulli(now, 0.9, x.shape), x / 0.9, 0)

    f = SimpleNamespace(
        sort=lambda x: jnp.sort(x, axis=1), argsort=lambda x: jnp.argsort(x, axis=1),
        cumsum=lambda x, axis: jnp.cumsum(x, axis=axis), lookup=lambda x, i: x[i],
        add_at=lambda x, i, u: x.at[i].add(u), top=lambda x, k: jax.lax.top_k(x, k)[0],
        take_along=lambda x, i: jnp.take_along_axis(x, i, axis=1), search=jnp.searchsorted,
        dropout=dropout,
    )  # fmt: skip

    @jax.jit
    def forward(k: Any, a: Any) -> Any:
        key[0] = k
        return case.run(f, a), key[0]

    @jax.jit
    def moved(k: Any, a: Any, c: Any) -> Any:
        def loss(p: Any) -> Any:
            key[0] = k
            return jnp.sum(case.run(f, a | {case.param: p}) * c), key[0]

        (y, new), g = jax.value_and_grad(loss, has_aux=True)(a[case.param])
        return a[case.param] - 0.01 * g, new, y

    a = {n: jnp.array(x) for n, x in case.made().items()}
    state = [key[0], a.get(case.param)]
    weights = jnp.ones_like(forward(key[0], a)[0]) if case.param else None

    def run() -> None:
        if case.param:
            state[1], state[0], _ = moved(state[0], a | {case.param: state[1]}, weights)
            state[1].block_until_ready()
        else:
            y, state[0] = forward(state[0], a)
            y.block_until_ready()

    return run


def torch_step(case: Case) -> Callable[[], Any]:
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(1)
    f = SimpleNamespace(
        sort=lambda x: torch.sort(x, 1)[0], argsort=lambda x: torch.argsort(x, 1),
        cumsum=lambda x, axis: torch.cumsum(x, axis, dtype=x.dtype),
        add_at=lambda x, i, u: x.index_add(0, i, u), top=lambda x, k: torch.topk(x, k, 1)[0],
        lookup=lambda x, i: F.embedding(i, x) if x.dim() > 1 else x[i],
        take_along=lambda x, i: torch.gather(x, 1, i), search=torch.searchsorted,
        dropout=lambda x: F.dropout(x, 0.1),
    )  # fmt: skip
    a = {n: torch.from_numpy(x) for n, x in case.made().items()}
    if case.run.__code__.co_names[0] in ("take_along", "search") and "i" in a:
        a["i"] = a["i"].long()
    if not case.param:
        return lambda: case.run(f, a)
    p = a[case.param] = torch.nn.Parameter(a[case.param])
    weights = torch.ones_like(case.run(f, a))
    o = torch.optim.SGD([p], lr=0.01)

    def run() -> None:
        o.zero_grad(set_to_none=True)
        (case.run(f, a) * weights).sum().backward()
        o.step()

    return run


SYSTEMS = {
    "graphc": ("graphc", graphc_step), "numpy": ("numpy", numpy_step), "jax": ("jax", jax_step),
    "torch": ("torch", torch_step),
}  # fmt: skip


def work(system: str, names: Sequence[str]) -> None:
    """Answers each line of the input, the number of a case."""
    say({})
    steps: dict[int, Any] = {}
    for number in asked():
        if number not in steps:
            steps[number] = _ready(SYSTEMS[system][1](CASES[names[number]]))
        say(timed(*steps[number]) if steps[number] else {"processor": None})


def _ready(step: Callable[[], Any] | None) -> Any:
    """What `timed` takes: a step that has run, and as many as fit into a round."""
    if step is None:
        return None
    run, none = (lambda _: step()), cycle([None])
    once = [timed(run, none, 3)["seconds"] for _ in range(2)][1]
    return run, none, max(3, min(2000, int(SECONDS / once)))


SECONDS = 0.03  # of a system in a round


def measure(runners: Sequence[Runner], number: int, rounds: int) -> dict[str, float]:
    """Seconds of the processor in each system that has the case."""
    found: dict[str, list[float]] = {r.system: [] for r in runners}
    for _ in range(rounds):
        for r in runners:
            answer = r.ask(f"{number}\n")
            if answer and answer["processor"] is not None:
                found[r.system].append(answer["processor"])
    return {s: median(times) for s, times in found.items() if times}


def row(name: str, times: dict[str, float], systems: Sequence[str]) -> str:
    """A line of the table."""
    others = [t for s, t in times.items() if s != "graphc"]
    ratio = f"{times['graphc'] / min(others):7.2f}" if others and "graphc" in times else " " * 7
    cells = (f"{times[s] * 1e6:10.1f}" if s in times else " " * 10 for s in systems)
    return f"{name:44}{''.join(cells)}{ratio}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--systems", nargs="*", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--only", nargs="*", default=[""], help="words that a case begins with")
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    names = [n for n in CASES if any(n.startswith(word) for word in args.only)]
    if args.work:
        work(args.work, names)
        return
    systems = [s for s in args.systems if find_spec(SYSTEMS[s][0]) is not None]
    with ExitStack() as stack:
        made = [
            start(s, [__file__, "--work", s, "--only", *args.only], stack, environment(1))
            for s in systems
        ]
        print(f"{'microseconds':44}{''.join(f'{s:>10}' for s in systems)}  ratio")
        for number, name in enumerate(names):
            times = measure([r for r in made if r], number, args.rounds)
            print(row(name, times, systems), flush=True)


if __name__ == "__main__":
    main()
