"""The gradient of a random step is the slope of its loss."""

from __future__ import annotations

from laws.differences import check_gradient
from laws.recipe import BATCH

from graphc.autodiff.reverse_mode import gradients
from graphc.ir.builder import Builder
from graphc.ir.op import op_named
from graphc.ir.types import F32, TensorType

SEEDS = range(300)


def test_the_gradient_of_a_random_step_is_the_slope_of_its_loss() -> None:
    checked = sum(check_gradient(seed) for seed in SEEDS)
    assert checked > len(SEEDS) // 2


def test_the_gradient_of_a_step_with_gradients_in_it_is_the_slope_of_its_loss() -> None:
    checked = sum(check_gradient(seed, ("slope",)) for seed in range(30))
    assert checked > 15


def test_a_gradient_names_its_dims_as_its_value_does_even_where_an_op_forgets_them() -> None:
    f = Builder()
    read = op_named("input")(source_name="x")  # type: ignore[call-arg]
    x = f.add(read, type=TensorType((4, 3), F32, (BATCH, None)))
    back = f.reverse(x, dim=0)
    assert back.type.extents == ()
    loss = f.sum(x * x) + f.sum(back)
    gradient = gradients(f, loss, [x.name])[x.name]
    assert gradient is not None
    assert gradient.type.extents == (BATCH, None)
