"""Faults in the facts of ops, and in their gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from laws.fault import Patch, around, fault

from graphc.autodiff import reverse_mode
from graphc.ir import dims
from graphc.ops import binary, indexing, reduce, rules, settle, shape, source, unary
from graphc.ops.composites import reductions
from graphc.passes.placing import equal_cuts
from graphc.runtime.backends import local_conversions

# -- facts of ops ---------------------------------------------------------------------------------


@fault("mesh", "smooth", late=True)
def _tanh_called_linear(patch: Patch) -> None:
    """tanh of a partial sum is called the partial sum of tanh."""
    for op in (unary.Tanh, unary.Sin, unary.Exp, unary.Erf, unary.Sqrt, unary.Log):
        patch.setattr(op, "linear", ((0,),))


@fault("mesh", "binary", "smooth")
def _product_called_bilinear(patch: Patch) -> None:
    """Both factors of a product may be partial at once."""
    patch.setattr(binary.Mul, "jointly_linear", True)


@fault("mesh", "batch_statistic", "reduced")
def _maximum_called_a_sum(patch: Patch) -> None:
    """The parts of a maximum are added."""
    patch.setattr(reduce.ReduceMax, "reduces", "sum")


@fault("mesh", "permuted")
def _transpose_rule_unpermuted(patch: Patch) -> None:
    """A transpose's dims rule leaves the dims where they are."""
    letters = dims.letters
    patch.setattr(
        shape.Transpose, "dims", lambda self, *t: f"{letters(t[0].rank)} -> {letters(t[0].rank)}"
    )


@fault("mesh", "merged", "cut", "permuted", late=True)
def _minor_factor_cut(patch: Patch) -> None:
    """A group of dims is cut between any two entries."""
    patch.setattr(equal_cuts.EqualCuts, "fits", lambda self, signature: True)
    patch.setattr("graphc.verify.placed.parts_match", lambda subject: iter(()))


@fault("mesh", "embedding")
def _gather_from_a_part_not_zero(patch: Patch) -> None:
    """A part of a table gives its first row for the ids of other parts."""

    def run_shard(self: Any, shard: Any, table: Any, ids: Any) -> Any:
        at = np.clip(ids - shard.offsets[self.dim], 0, max(0, table.shape[self.dim] - 1))
        return np.take(table, at, axis=self.dim)

    patch.setattr(indexing.Gather, "run_shard", run_shard)


@fault("mesh", "dropout")
def _random_without_offset(patch: Patch) -> None:
    """Every shard draws the same random numbers."""
    around(
        patch, source.Random, "run_shard",
        lambda old, self, shard, *xs: old(
            self, replace(shard, offsets=(0,) * len(shard.offsets)), *xs
        ),
    )  # fmt: skip


@fault("mesh", "positions")
def _iota_without_offset(patch: Patch) -> None:
    """iota starts anew in every shard."""
    patch.setattr(source.Iota, "run_shard", lambda self, shard: self._make(shard.shape, 0))


@fault("mesh")
def _mean_by_the_static_count(patch: Patch) -> None:
    """A mean divides by the size of the batch, not by how many examples came."""
    around(patch, reductions, "count", lambda old, f, t, d, like: f.lift(_size(t, d), like.dtype))


def _size(t: Any, over: Any) -> int:
    n = 1
    for d in over:
        n *= t.shape[d]
    return int(n)


# -- gradients ------------------------------------------------------------------------------------


@fault("slope")
def _gradient_of_sub(patch: Patch) -> None:
    """The second operand of a difference gets the gradient with the wrong sign."""
    patch.setattr(binary.Sub, "grad", lambda self, f, g, y, *xs: (g, g))


@fault("slope")
def _gradient_of_div(patch: Patch) -> None:
    """The divisor's gradient lacks a factor."""
    patch.setattr(binary.Div, "grad", lambda self, f, g, y, *xs: (g / xs[1], -g * y))


@fault("slope")
def _gradient_of_mul(patch: Patch) -> None:
    """The factors' gradients are exchanged."""
    patch.setattr(binary.Mul, "grad", lambda self, f, g, y, *xs: (g * xs[0], g * xs[1]))


@fault("slope", "reduced")
def _gradient_of_max(patch: Patch) -> None:
    """Every entry gets the gradient of a maximum."""
    patch.setattr(reduce, "_share", lambda f, g, y, x, over: rules.spread(f, g, x, over))


@fault("slope")
def _contribution_dropped(patch: Patch) -> None:
    """Of several contributions to a gradient the last is left out."""

    def change(old: Any, self: Any, value: Any) -> None:
        if len(self.parts) < 2:
            old(self, value)

    around(patch, reverse_mode.Contributions, "take", change)


@fault("run", "dense")
def _tree_of_turns_forgets_a_carry(patch: Patch) -> None:
    """In a tree of turns only the lowest sum is carried."""

    def change(old: Any, order: Any, op: Any, turn: int, x: Any, kept: Any) -> None:
        old(order, op, turn if turn != 1 else 0, x, kept)

    around(patch, local_conversions, "keep", change)


@fault("run", "dense")
def _settled_without_the_rest(patch: Patch) -> None:
    """Of the sums of a tree of turns the first alone is taken."""
    patch.setattr(settle.Settle, "run", lambda self, kept: kept[0].copy())


@fault("slope")
def _denominator_lost(patch: Patch) -> None:
    """A gradient is not divided by the count that its loss was divided by."""
    patch.setattr(reverse_mode, "_resolve", lambda f, key, value: value)
