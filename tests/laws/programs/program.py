"""A program: the text of a NumPy function, and its data."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Arrays: TypeAlias = dict[str, Array]
Function: TypeAlias = Callable[[Any, Any], Any]
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1.5, -2.0, 1e-40)
HALF = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


@dataclass(frozen=True)
class Leaf:
    """An array that the function is given.

    tree:  'params' or 'batch'
    shape: its dims; None is the batch
    how:   its numbers: 'grid' (quarters), 'zeros' (of both signs, and some others), 'normal',
           'special', 'bool', or 'ids 5' (below 5)
    """

    name: str
    tree: str
    shape: tuple[int | None, ...]
    dtype: str
    how: str

    def array(self, seed: int, examples: int) -> Array:
        """The numbers, the same for every program of the seed; of so many examples."""
        rng = np.random.default_rng([seed, *self.name.encode()])
        drawn = self._drawn(rng, tuple(8 if n is None else n for n in self.shape))
        made = drawn[:examples] if None in self.shape else drawn
        return np.asarray(made, dtype=self.dtype)

    def _drawn(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        kind, _, limit = self.how.partition(" ")
        match kind:
            case "grid":
                return np.asarray(rng.integers(-8, 9, shape) / 4)
            case "zeros":
                return rng.choice((-0.0, 0.0, -0.25, -0.75, 1.5), shape)
            case "special":
                return rng.choice(SPECIAL, shape)
            case "bool":
                return np.asarray(rng.integers(0, 2, shape), bool)
            case "ids":
                return np.asarray(rng.integers(0, int(limit), shape))
            case _:
                return np.asarray(rng.normal(0, 1, shape)).astype(np.float32)


@dataclass(frozen=True)
class Statement:
    """`name = text`. uses: the names in the text."""

    name: str
    text: str
    uses: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """A function of params and batch, which returns a loss and reports.

    sizes:  examples in a full batch, and in a short one
    smooth: whether finite differences of the loss are its gradient
    coarse: whether something on the way is in half precision
    narrow: whether something on the way is f32 in an f64 program, too
    """

    seed: int
    sizes: tuple[int, int]
    leaves: tuple[Leaf, ...]
    statements: tuple[Statement, ...]
    loss: tuple[Statement, ...]
    reports: tuple[str, ...]
    smooth: bool = True
    coarse: bool = False
    narrow: bool = False

    @property
    def text(self) -> str:
        """The function, by itself."""
        lines = ["def f(params, batch):"]
        lines += [f'    {leaf.name} = {leaf.tree}["{leaf.name}"]' for leaf in self.leaves]
        lines += [f"    {s.name} = {s.text}" for s in self.statements]
        lines += [f"    loss = {' + '.join(s.text for s in self.loss)}"]
        reports = ", ".join(f'"r{i}": {name}' for i, name in enumerate(self.reports))
        return "\n".join([*lines, f"    return loss, {{{reports}}}", ""])

    def function(self, **names: Any) -> Function:
        """The function, where `np`, `nn` and `F` are what is given."""
        file = f"<program {self.seed}>"
        linecache.cache[file] = (len(self.text), None, self.text.splitlines(True), file)
        scope: dict[str, Any] = {"np": np, **HALF, **names}
        exec(compile(self.text, file, "exec"), scope)
        function: Function = scope["f"]
        return function

    def data(self, examples: int, wide: bool = False) -> tuple[Arrays, Arrays]:
        """(params, batch); wide: floats are f64."""
        made: dict[str, Arrays] = {"params": {}, "batch": {}}
        for leaf in self.leaves:
            a = leaf.array(self.seed, examples)
            made[leaf.tree][leaf.name] = a.astype(np.float64) if wide and a.dtype.kind == "f" else a
        return made["params"], made["batch"]

    @property
    def whole(self) -> tuple[str, ...]:
        """The leaves of the batch that have no batch dim."""
        leaves = (x for x in self.leaves if x.tree == "batch")
        return tuple(x.name for x in leaves if None not in x.shape)

    def needed(self) -> Program:
        """Without what neither the loss nor a report uses."""
        used = {x for s in self.loss for x in s.uses} | set(self.reports)
        for s in reversed(self.statements):
            if s.name in used:
                used.update(s.uses)
        return replace(
            self,
            leaves=tuple(x for x in self.leaves if x.name in used or self._is_counted(x)),
            statements=tuple(s for s in self.statements if s.name in used),
        )

    def _is_counted(self, leaf: Leaf) -> bool:
        """Whether it is the leaf that tells how long the batch is: the first that has a batch."""
        return leaf == next((x for x in self.leaves if None in x.shape), None)

    def pasted(self, short: bool = False) -> str:
        """The function and its data, to be pasted into a file."""
        params, batch = self.data(self.sizes[short])
        head = "import numpy as np\nimport graphc\nfrom graphc import nn\n"
        half = "from ml_dtypes import bfloat16\nfrom numpy import float16\n" if self.coarse else ""
        data = f"F = np.float32\nparams = {_shown(params)}\nbatch = {_shown(batch)}\n"
        whole = f"  # whole={list(self.whole)}\n" if self.whole else ""
        return f"{head}{half}\n{self.text}\n{data}{whole}"


def _shown(arrays: Mapping[str, Array]) -> str:
    body = "".join(
        f'    "{k}": np.array({a.tolist()}, np.{a.dtype}).reshape({a.shape}),\n'
        for k, a in arrays.items()
    )
    return f"{{\n{body}}}".replace(" nan", " np.nan").replace("inf", "np.inf")
