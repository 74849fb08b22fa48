"""Steps of unusual structure: views of products, joins of joins, lookups at computed indices.

Each is an ordinary NumPy function, so NumPy itself says what its loss is, and how steep.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import graphc
from graphc import nn
from graphc.support import random

Array = NDArray[Any]
Loss = Callable[[Any, Any], Any]
STEP = 1e-6  # of the slope
NODES = np.linspace(-1.5, 1.5, 5)


@dataclass(frozen=True)
class Structure:
    """A loss, its parameters, and a batch of an even number of examples.

    split: the dim along which each parameter may be split; formula: the same loss without
    functions of graphc.nn, where it has such
    """

    loss: Loss
    params: dict[str, Array]
    batch: dict[str, Array]
    split: tuple[tuple[str, int], ...] = ()
    formula: Loss | None = None

    @property
    def wanted(self) -> float:
        """The loss, as NumPy computes it."""
        return self._at(0, {})

    def _at(self, step: float, way: dict[str, Array]) -> float:
        params = {k: x + step * way[k] if step else x for k, x in self.params.items()}
        return float((self.formula or self.loss)(params, self.batch))

    def check_slope(self, changed: dict[str, Array]) -> None:
        """Parameters after a step of sgd(0.5) went along NumPy's gradient, in a random direction."""
        r = np.random.default_rng(3)
        way = {k: r.normal(size=x.shape) for k, x in self.params.items()}
        slope = (self._at(STEP, way) - self._at(-STEP, way)) / (2 * STEP)
        moved = sum(np.sum((x - changed[k]) * way[k]) for k, x in self.params.items())
        np.testing.assert_allclose(moved / 0.5, slope, rtol=2e-5, atol=1e-8)


def of(*shape: int) -> Array:
    """Numbers that depend on the shape only."""
    return np.random.default_rng(shape).normal(size=shape)


def squares(x: Any) -> Any:
    """A loss to which every entry counts differently."""
    if x.ndim > 1:
        x = x * np.cos(np.arange(x.shape[-1], dtype=float))
    if x.ndim > 2:
        x = x * np.sin(np.arange(1.0, x.shape[1] + 1)).reshape((-1,) + (1,) * (x.ndim - 2))
    return np.mean(np.square(x))


# -- views of products ----------------------------------------------------------------------------


def seen_as(change: Callable[[Any], Any]) -> Loss:
    return lambda p, b: squares(change(b["x"] @ p["w"]))


def attend(p: Any, b: Any) -> Any:
    """One query to many keys."""
    q, k, v = b["x"] @ p["q"], b["y"] @ p["k"], b["y"] @ p["v"]
    scores = np.exp(np.einsum("bqd,bkd->bqk", q, k) / 4)
    scores = scores / np.sum(scores, axis=-1, keepdims=True)
    return squares(np.einsum("bqk,bkd->bqd", scores, v)[:, 0])


def convolution(groups: int, *taps: int) -> Structure:
    """Taps: of height, width, channels of a group, all outputs."""

    def loss(p: Any, b: Any) -> Any:
        return squares(nn.conv2d(b["x"], p["w"], padding="valid", groups=groups))

    def formula(p: Any, b: Any) -> Any:
        h, w, channels, outputs = p["w"].shape
        x = np.lib.stride_tricks.sliding_window_view(b["x"], (h, w), axis=(1, 2))
        x = x.reshape(*x.shape[:3], groups, channels, h, w)
        taps = p["w"].reshape(h, w, channels, groups, outputs // groups)
        y = np.einsum("byxgchw,hwcgo->byxgo", x, taps)
        return squares(y.reshape(*y.shape[:3], -1))

    return Structure(loss, {"w": of(*taps)}, {"x": of(4, 7, 8, 6)}, (("w", 3),), formula)


ONE_COLUMN = {"w": of(16, 1)}, {"x": of(40, 16)}
ONE_ROW = {"w": of(16, 4)}, {"x": of(30, 1, 16)}
SMALL = {"w": of(5, 6)}, {"x": of(4, 5)}
ATTENTION = (
    {"q": of(8, 8), "k": of(8, 8) * 0.5, "v": of(8, 8)},
    {"x": of(10, 1, 8), "y": of(10, 7, 8)},
)
VIEWS: dict[str, Structure] = {
    "a row of one": Structure(seen_as(lambda y: y[:, 0]), *ONE_ROW, (("w", 1),)),
    "a column of one": Structure(seen_as(lambda y: y[:, 0]), *ONE_COLUMN, (("w", 0),)),
    "squeeze": Structure(seen_as(lambda y: y.squeeze(-1)), *ONE_COLUMN, (("w", 0),)),
    "reshape": Structure(seen_as(lambda y: y.reshape(-1)), *ONE_COLUMN),
    "flipped": Structure(seen_as(lambda y: y[:, ::-1, 0]), {"w": of(16, 1)}, {"x": of(4, 9, 16)}),
    "one entry": Structure(seen_as(lambda y: y[:, 0, 0]), {"w": of(5, 1)}, {"x": of(4, 1, 5)}),
    "a run of entries": Structure(
        seen_as(lambda y: y.reshape(y.shape[0], -1)[:, 3:9]), {"w": of(5, 6)}, {"x": of(4, 3, 5)}
    ),
    "a step": Structure(seen_as(lambda y: y[:, 1::3]), *SMALL, (("w", 0),)),
    "a view of a view": Structure(
        seen_as(lambda y: y.T[1:, None, :].swapaxes(0, 2)[..., 2:]), *SMALL
    ),
    "a dim in two": Structure(seen_as(lambda y: y.reshape(-1, 3, 2)[:, 1:, :1]), *SMALL),
    "two parts": Structure(seen_as(lambda y: y[:, :2] * y[:, 4:]), *SMALL),
    "depthwise": convolution(6, 3, 3, 1, 6),
    "depthwise, two of each": convolution(6, 3, 1, 1, 12),
    "grouped": convolution(3, 3, 3, 2, 9),
    "grouped, one tap": convolution(2, 1, 1, 3, 4),
    "one group": convolution(1, 2, 3, 6, 4),
    "one query": Structure(attend, *ATTENTION, (("q", 1), ("k", 1))),
}


def counted(p: Any, b: Any) -> Any:
    """Indices along a dim, seen as a vector."""
    indices = nn.reshape(nn.iota(shape=(3, 4), dim=1), shape=(12,))
    return squares(b["x"] * p["w"] * indices)


VIEWS["indices across dims"] = Structure(
    counted, {"w": of(12)}, {"x": of(6, 12)},
    formula=lambda p, b: squares(b["x"] * p["w"] * np.tile(np.arange(4), 3)),
)  # fmt: skip


# -- joins ----------------------------------------------------------------------------------------


def joined(change: Callable[[Any, Any], Any]) -> Loss:
    """What is done with a join of two parts, and one of the parts."""

    def loss(p: Any, b: Any) -> Any:
        x = b["x"]
        return squares(change(np.concatenate([x * p["w"], np.sin(x)], 1), x))

    return loss


def row(*parts: Any) -> Any:
    return np.concatenate(parts, 1)


JOINS: dict[str, Structure] = {
    name: Structure(joined(change), {"w": of(5)}, {"x": of(6, 5)}, (("w", 0),))
    for name, change in {
        "twice in one": lambda h, x: row(h, h),
        "thrice, with others": lambda h, x: row(h, x, h, h),
        "twice in a stack": lambda h, x: np.stack([h, h], 1),
        "in the last dim of a stack": lambda h, x: np.stack([h, h, h], -1),
        "after a part of it": lambda h, x: row(h[:, :3], h),
        "before a part of it": lambda h, x: row(h, h[:, 2:5]),
        "before every other entry": lambda h, x: row(h, h[:, ::2]),
        "beside itself flipped": lambda h, x: row(h, h[:, ::-1]),
        "after none of it": lambda h, x: row(h[:, :0], h, h),
        "in two joins": lambda h, x: row(h, x) * row(x, h),
        "read besides": lambda h, x: row(h, h) + row(np.cos(h), h),
        "along another dim": lambda h, x: np.concatenate([h, h], 0),
        "along both dims": lambda h, x: np.concatenate([row(h, h), row(h, h)], 0),
        "three deep": lambda h, x: row(row(row(h, h), h), h),
        "beside what is made of it": lambda h, x: row(h, np.tanh(h), h @ np.ones((10, 2))),
        "beside a sum of it": lambda h, x: row(h, h - np.max(h, 1, keepdims=True), h * np.sum(h)),
        "transposed": lambda h, x: np.concatenate([h.T, h.T], 0).T,
    }.items()
}


# -- lookups --------------------------------------------------------------------------------------


def classes(x: Any) -> Any:
    return np.clip(np.floor(x * 2 + 2), 0, 4).astype(np.int64)


def looked_up(index: Callable[[Any, Any], Any]) -> Loss:
    """A number of a table for each index, which is computed from the batch and a parameter."""
    return lambda p, b: np.mean(np.square(p["t"][index(b["x"], p["w"])] + np.sum(b["x"] * p["w"])))


def times_a_fold(p: Any, b: Any) -> Any:
    """The index of an extreme and the extreme itself, of one row."""
    x = b["x"] * p["w"]
    return np.mean(p["t"][np.argmax(x, axis=1)] * np.max(x, axis=1))


def in_cells(p: Any, b: Any) -> Any:
    """A row's own number of a table, for each of its entries."""
    of_row = p["t"][classes(np.sum(b["x"], axis=1))]
    return squares(of_row[:, None] * b["x"] * p["w"])


def sorted_rows(p: Any, b: Any) -> Any:
    order = np.argsort(b["x"], axis=1)
    return squares(np.take_along_axis(b["x"] * p["w"], order, axis=1) + p["t"])


def in_another_order(p: Any, b: Any) -> Any:
    order = np.argsort(b["x"], axis=1)
    return squares(np.take_along_axis(np.cos(b["x"]), order, axis=1) * p["w"] + p["t"])


def of_a_fold(p: Any, b: Any) -> Any:
    """A table that is itself folded, and looked up where it was."""
    sums = np.sum(b["x"] * p["w"], axis=1)
    return np.mean(np.square(sums[np.argmax(b["x"], axis=1)] + p["t"][0]))


def of_rows(p: Any, b: Any) -> Any:
    """A lookup at the largest entry of a row that was looked up."""
    table = np.outer(p["t"], p["w"])
    return squares(table[np.argmax(table[classes(b["x"][:, 1])], axis=1)])


LOOKUPS: dict[str, Structure] = {
    name: Structure(loss, {"w": of(5), "t": of(1, 5)[0]}, {"x": of(6, 5)})
    for name, loss in {
        "where a row is largest": looked_up(lambda x, w: np.argmax(x * w, axis=1)),
        "where a column is least": looked_up(lambda x, w: np.argmin(np.outer(w, w), axis=0)),
        "where all is largest": looked_up(lambda x, w: np.argmax(w)),
        "at how many are positive": looked_up(lambda x, w: np.sum(x > 0, axis=1) - 1),
        "at a rounded sum": looked_up(lambda x, w: classes(np.sum(x, axis=1))),
        "at a rounded entry": looked_up(lambda x, w: classes(x)),
        "at what was searched": looked_up(lambda x, w: np.searchsorted(NODES[1:], x @ w)),
        "interpolated": lambda p, b: squares(np.interp(b["x"] @ p["w"], NODES, p["t"])),
        "interpolated everywhere": lambda p, b: squares(np.interp(b["x"] * p["w"], NODES, p["t"])),
        "times what was folded": times_a_fold,
        "for all cells of a row": in_cells,
        "along a row": sorted_rows,
        "along a row, of all": lambda p, b: squares(np.sort(b["x"] * p["w"], axis=1) * p["t"]),
        "along a row of the batch": lambda p, b: squares(np.sort(b["x"], axis=1) * p["t"] + p["w"]),
        "in the order of another": in_another_order,
        "along a dim between others": lambda p, b: squares(
            np.sort(b["x"][:, :, None] * np.array([1.0, -1.0]), axis=1)[:, :, 1] * p["t"] + p["w"]
        ),
        "along a column": lambda p, b: squares(b["x"] @ np.sort(np.outer(p["w"], p["t"]), axis=0)),
        "of sums so far": lambda p, b: squares(np.cumsum(b["x"] * p["w"], axis=1) + p["t"]),
        "of sums so far, down": lambda p, b: squares(
            b["x"] @ np.cumsum(np.outer(p["w"], p["t"]), axis=0)
        ),
        "of a row of a row's": of_rows,
        "of what is folded": of_a_fold,
    }.items()
}
for size in (2, 70):
    LOOKUPS[f"in {size} rows"] = Structure(
        times_a_fold, {"w": of(5), "t": of(1, 5)[0]}, {"x": of(size, 5)}
    )
LOOKUPS["of the largest of many"] = Structure(
    lambda p, b: squares(np.sort(b["x"], axis=1)[:, -3:] * p["w"]), {"w": of(3)}, {"x": of(12, 70)}
)
LOOKUPS["of the least of many, down"] = Structure(
    lambda p, b: squares(np.sort(b["x"].T, axis=0)[4:1:-1] * p["w"]),
    {"w": of(12)},
    {"x": of(12, 70)},
)


def in_two_tables(first: int, second: int) -> Structure:
    """So many of the indices, from the first on, look up rows of one table and of another."""

    def loss(look_up: Loss) -> Loss:
        return lambda p, b: (
            squares(look_up(p["e"], b["i"][:first]))
            + squares(np.tanh(look_up(p["g"], b["i"][:second])))
        )

    return Structure(
        loss(lambda table, i: nn.gather(table, i, dim=0)), {"e": of(60, 3), "g": of(60, 3)},
        {"i": np.array([3, 50, 3, 7, 50, 3])}, formula=loss(lambda table, i: table[i]),
    )  # fmt: skip


LOOKUPS["of some, and of more"] = in_two_tables(4, 6)
LOOKUPS["of all, and of some"] = in_two_tables(6, 4)

# -- dims of length 0 -----------------------------------------------------------------------------


def beside(nothing: Callable[[Any, Any], Any]) -> Loss:
    """A sum over what has no entries, beside one that has some."""
    return lambda p, b: np.sum(np.square(b["x"] * p["w"])) + np.sum(nothing(p["z"], b["x"]) + 1.0)


def with_a_state(p: Any, b: Any) -> Any:
    """A state of no entries, which is written."""
    graphc.state("none", np.zeros((3, 0)))
    graphc.update("none", b["x"][:0, :3].T)
    return squares(b["x"] * p["w"])


EMPTY: dict[str, Structure] = {
    name: Structure(beside(f), {"w": of(5), "z": of(0, 3)}, {"x": of(6, 5)})
    for name, f in {
        "a parameter": lambda z, x: z,
        "a product of nothing": lambda z, x: x[:, :0] @ z,
        "a product without rows": lambda z, x: z @ np.ones((3, 2)),
        "sums of nothing": lambda z, x: np.sum(z, axis=0),
        "a row of a table without columns": lambda z, x: z.T[np.argmax(x[:, :3], axis=1)],
        "a join of nothing": lambda z, x: np.concatenate([z, z, np.tanh(z)], 0),
        "none of a join": lambda z, x: np.concatenate([z, x[:, :3]], 0)[:0],
        "none of a product": lambda z, x: (x @ np.ones((5, 4)))[:, 2:2] @ z[:, :2],
        "outer": lambda z, x: x[:, :1] * np.sum(z, axis=1),
        "sorted": lambda z, x: np.sort(z, axis=1),
        "padded": lambda z, x: np.pad(z, ((1, 1), (0, 0))),
        "reshaped": lambda z, x: z.reshape(3, 0, 2).T,
    }.items()
}
EMPTY["a state"] = Structure(
    with_a_state, {"w": of(5)}, {"x": of(6, 5)}, formula=lambda p, b: squares(b["x"] * p["w"])
)

# -- products of a variable that is written in the same kernel ------------------------------------

OVERWRITTEN: dict[str, Structure] = {
    name: Structure(f, {"w": of(4, 4)}, {"x": of(2, 3)})
    for name, f in {
        "its rows scaled": lambda p, b: (
            np.mean(np.square(p["w"].T)) + np.mean(np.einsum("ab,ba->b", p["w"], p["w"])) ** 2
        ),
        "its inner products": lambda p, b: np.sum(np.inner(p["w"], p["w"])) / b["x"].shape[0],
        "its square": lambda p, b: squares(p["w"] @ p["w"]),
        "beside its transpose": lambda p, b: squares(p["w"] @ p["w"].T) + squares(p["w"].T),
    }.items()
}

# -- values that a kernel computes again, and reads at another entry besides -----------------------


def powers(w: Array) -> Any:
    return np.power(np.abs(w) + 0.5, np.tanh(w))


AGAIN: dict[str, Structure] = {
    name: Structure(f, {"w": of(5)}, {"x": of(2, 3)})
    for name, f in {
        "its last": lambda p, b: np.mean(np.square(powers(p["w"]) + powers(p["w"])[..., -1:])),
        "its first": lambda p, b: np.mean(np.square(powers(p["w"]) * powers(p["w"])[:1])),
        "its reverse": lambda p, b: np.mean(np.square(powers(p["w"]) + powers(p["w"])[::-1])),
        "its neighbour": lambda p, b: np.mean(np.square(powers(p["w"])[1:] + powers(p["w"])[:-1])),
    }.items()
}

# -- random numbers, in loops of every kind --------------------------------------------------------


def drawn(key: str, *shape: int, kind: Any = random.uniform, dtype: Any = np.float32) -> Array:
    """The numbers of a draw in the first step."""
    entries = np.arange(np.prod(shape), dtype=np.uint64).reshape(shape)
    found: Array = kind(entries, np.dtype(dtype), random.key(0, key), 0)
    return found


def dropped(x: Array, key: str) -> Array:
    return np.where(drawn(key, *x.shape) >= np.float32(0.25), x / 0.75, 0.0)


def twice_dropped(drop: Any) -> Loss:
    return lambda p, b: squares(drop(np.tanh(drop(b["x"] @ p["w"], "a")) @ p["v"], "b"))


def noisy(noise: Any) -> Loss:
    return lambda p, b: squares((b["x"] @ p["w"]).T * noise(b["x"].shape[0]).T)


def attend_some(drop: Any) -> Loss:
    def loss(p: Any, b: Any) -> Any:
        k = b["x"] @ p["k"]
        scores = np.exp(np.einsum("btd,bsd->bts", b["x"] @ p["q"], k) / 4)
        scores = drop(scores / np.sum(scores, axis=-1, keepdims=True), "a")
        return squares(np.einsum("bts,bsd->btd", scores, k))

    return loss


def _dropout(x: Any, key: str) -> Any:
    return nn.dropout(x, 0.25, key=key)


LAYERS = {"w": of(5, 19), "v": of(19, 7)}, {"x": of(6, 5)}
RANDOM: dict[str, Structure] = {
    "dropout": Structure(twice_dropped(_dropout), *LAYERS, formula=twice_dropped(dropped)),
    "dropout of scores": Structure(
        attend_some(_dropout),
        {"q": of(4, 8), "k": of(4, 8)},
        {"x": of(6, 10, 4)},
        formula=attend_some(dropped),
    ),
    "noise in another order": Structure(
        noisy(lambda n: nn.random_normal((n, 19), key="a", dtype=np.float64)),
        {"w": of(5, 19)},
        {"x": of(6, 5)},
        formula=noisy(lambda n: drawn("a", n, 19, kind=random.normal, dtype=np.float64)),
    ),
    "noise of rows": Structure(
        noisy(lambda n: nn.random_uniform((n, 1), key="a", dtype=np.float64) + np.ones(19)),
        {"w": of(5, 19)},
        {"x": of(6, 5)},
        formula=noisy(lambda n: drawn("a", n, 1, dtype=np.float64) + np.ones(19)),
    ),
    "one number": Structure(
        lambda p, b: squares(b["x"] @ p["w"]) * nn.random_normal((), key="a", dtype=np.float64),
        {"w": of(5, 19)},
        {"x": of(6, 5)},
        formula=lambda p, b: (
            squares(b["x"] @ p["w"]) * drawn("a", kind=random.normal, dtype=np.float64)
        ),
    ),
}

KINDS = {
    "random": RANDOM,
    "again": AGAIN,
    "view": VIEWS,
    "join": JOINS,
    "lookup": LOOKUPS,
    "empty": EMPTY,
    "overwritten": OVERWRITTEN,
}
ALL = {f"{kind}: {name}": x for kind, found in KINDS.items() for name, x in found.items()}
