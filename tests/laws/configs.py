"""How a random model is run: strategy, devices, turns, precision, and how full the batch is."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from itertools import combinations

from graphc.ir.graph import Graph
from graphc.ir.types import DTYPES, DType

SPACES = (
    "one_device", "mirrored", "tree", "chain", "tensor_auto", "tensor_map",
    "data_x_model", "model_x_data", "central", "servers", "servers_x_model", "model_x_central",
    "leaves", "leaves_x_model",
    "hosts", "hosts_tree", "hosts_x_leaves", "far_x_zero",
    "zero1", "zero2", "zero3", "zero_x_model", "model_x_zero", "zero_x_data", "data_x_zero",
)  # fmt: skip
PAIRS = {1: (1, 1), 2: (1, 2), 3: (3, 1), 4: (2, 2)}  # of data and model, by devices
TRIED = 20
ORDERS = ("last", "first")  # where accumulate stands in the product


@dataclass(frozen=True)
class Config:
    """One way to run a model.

    space, devices: the strategy over space; turns, order: accumulate(turns) and its place in the
    product; even: the batch divides by everything; short: fewer examples than the batch has; sums:
    how turns are added up.
    """

    space: str
    devices: int
    turns: int
    order: str
    dtype: str
    even: bool
    short: bool
    sums: str = "accumulate"

    @property
    def precision(self) -> DType:
        return DTYPES[self.dtype]

    @property
    def batch(self) -> int:
        """The static size of the batch."""
        return 12 if self.even else 7

    @property
    def valid(self) -> int:
        """How many examples there are."""
        return (5 if self.even else 4) if self.short else self.batch

    def strategy(self, cut: Mapping[str, int]) -> str:
        """The strategy's text; cut is the map of a tensor_split that is told what to cut."""
        spatial = self._spatial("{" + ", ".join(f'"{k}": {d}' for k, d in cut.items()) + "}")
        turns = f'accumulate({self.turns}, order="{self.sums}")' if self.turns > 1 else ""
        parts = (spatial, turns) if self.order == "last" else (turns, spatial)
        return " * ".join(filter(None, parts))

    def _spatial(self, cut: str) -> str:
        n = self.devices
        data, model = PAIRS[n]
        told = f"tensor_split({n}, {cut})" if cut != "{}" else f"tensor_split({n})"
        told_pair = f"tensor_split({model}, {cut})" if cut != "{}" else f"tensor_split({model})"
        return {
            "one_device": "one_device()",
            "mirrored": f"mirrored({n})",
            "tree": f'mirrored({n}, reduce="tree")',
            "chain": f'mirrored({n}, reduce="accumulate")',
            "tensor_auto": f"tensor_split({n})",
            "tensor_map": told,
            "data_x_model": f"mirrored({data}) * tensor_split({model})",
            "model_x_data": f"{told_pair} * mirrored({data})",
            "central": f"central_storage({n})",
            "servers": f"parameter_server({n}, 2)",
            "servers_x_model": f"parameter_server({data}, 2) * tensor_split({model})",
            "model_x_central": f"{told_pair} * central_storage({data})",
            "leaves": f"mirrored({n}) * reproducible({self._slots(n)})",
            "leaves_x_model": f"tensor_split({model}) * mirrored({data}) * "
            f"reproducible({self._slots(data)}, tiles=2)",
            "hosts": f"multi_worker_mirrored({data}, {model})",
            "hosts_tree": f'multi_worker_mirrored({data}, {model}, reduce="tree")',
            "hosts_x_leaves": f"multi_worker_mirrored({data}, {model}) * "
            f"reproducible({self._slots(n)})",
            "far_x_zero": f'mirrored({data}, link="network") * zero({model}, stage=2, link="host")',
            "zero1": f"zero({n})",
            "zero2": f"zero({n}, stage=2)",
            "zero3": f"zero({n}, stage=3)",
            "zero_x_model": f"zero({data}, stage=3) * tensor_split({model})",
            "model_x_zero": f"{told_pair} * zero({data}, stage=2)",
            "zero_x_data": f"zero({data}, stage=3) * mirrored({model})",
            "data_x_zero": f"mirrored({data}) * zero({model}, stage=1)",
        }[self.space]

    def _slots(self, data: int) -> int:
        """As few leaves as three, where these are enough; or more than there are examples."""
        return max(3, data * self.turns) if self.even else 13

    @property
    def parts(self) -> int:
        """In how many parts a tensor_split cuts a variable."""
        return PAIRS[self.devices][1] if self.space.count("_x_") else self.devices

    def pairs(self) -> Iterator[tuple[tuple[str, object], tuple[str, object]]]:
        """Every pair of settings that occurs in this configuration."""
        settings = [(f.name, getattr(self, f.name)) for f in fields(self)]
        yield from combinations(settings, 2)


OPTIONS: dict[str, tuple[object, ...]] = {
    "space": SPACES, "devices": (1, 2, 3, 4), "turns": (1, 2, 3), "order": ORDERS,
    "dtype": ("f64", "f32"), "even": (True, False), "short": (False, True), "sums": ("accumulate", "tree", "add_n"),
}  # fmt: skip


def config(seed: int) -> Config:
    """The configuration of that seed: the first ones cover every pair of settings."""
    first = _covering()
    return first[seed] if seed < len(first) else _drawn(seed)


def _drawn(seed: int) -> Config:
    rng = random.Random(f"config {seed}")
    drawn = {name: rng.choice(options) for name, options in OPTIONS.items()}
    if drawn["space"] == "one_device":
        drawn["devices"] = 1
    return Config(**drawn)  # type: ignore[arg-type]


@cache
def _covering() -> tuple[Config, ...]:
    """Drawn configurations, each the one of twenty that has the most new pairs of settings."""
    missing, found, number = every_pair(), [], 0
    while missing:
        candidates = [_drawn(n) for n in range(number, number + TRIED)]
        best = max(candidates, key=lambda c: len(missing.intersection(c.pairs())))
        missing.difference_update(best.pairs())
        found.append(best)
        number += TRIED
    return tuple(found)


def every_pair() -> set[tuple[tuple[str, object], tuple[str, object]]]:
    """Every pair of settings of two different options that can occur together."""
    settings = {name: [(name, o) for o in options] for name, options in OPTIONS.items()}
    pairs = {(a, b) for x, y in combinations(settings, 2) for a in settings[x] for b in settings[y]}
    return pairs - {(("space", "one_device"), ("devices", n)) for n in (2, 3, 4)}


def cuts(graph: Graph, parts: int, seed: int) -> dict[str, int]:
    """A random map for tensor_split: some parameters, each with a dim that is long enough."""
    rng = random.Random(f"cuts {seed}")
    found = {}
    for v in graph.variables.values():
        dims = [d for d, n in enumerate(v.type.shape) if n >= parts]
        if v.kind == "param" and dims and rng.random() < 0.7:
            found[v.name] = rng.choice(dims)
    return found
