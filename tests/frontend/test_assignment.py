"""Assignments name nodes without taking names away from others."""

from __future__ import annotations

import pytest

from graphc.frontend.language.load import module_of_source
from graphc.support.errors import GraphcError


def outputs(body: str, before: str = "") -> dict[str, str]:
    """The outputs, and their nodes, of a step on `x: f32[batch, 4]`."""
    text = f"{before}\nstep s(x: f32[batch, 4]) {{\n{body}\n}}"
    return dict(module_of_source(text, sizes={"batch": 8}).train.outputs)


def test_a_new_value_takes_the_name_that_the_program_gives_it() -> None:
    assert outputs("total = sum(x)\nreport r = total") == {"r": "total"}


@pytest.mark.parametrize(
    "body",
    [
        "y = x\nreport r = sum(x) + sum(y)",
        "h = x + 1.0\ny = h\nreport r = sum(h) + sum(y)",
        "h = x + 1.0\nfor w in [h] { y = w }\nreport r = sum(h)",
        "param w: f32[4] = zeros()\nv = w\nreport r = sum(w) + sum(v)",
        "a, b = both(x)\nreport r = sum(a) + sum(b)",
    ],
)
def test_a_second_name_leaves_the_first_one_valid(body: str) -> None:
    assert set(outputs(body, "fn both(x) {\ny = relu(x)\nreturn y, y\n}")) == {"r"}


def test_families_nest_and_name_their_variables_with_dots() -> None:
    text = """
    step s(x: f32[batch, 4]) {
        for i in range(2) {
            param layers[i].w: f32[4] = ones()
            param grid[i, 1]: f32[4] = ones()
            x = x * layers[i].w * grid[i, 1]
        }
        report r = sum(x)
    }
    """
    module = module_of_source(text, sizes={"batch": 8})
    assert list(module.train.variables) == ["layers.0.w", "grid.0.1", "layers.1.w", "grid.1.1"]


def test_a_part_of_a_tensor_is_no_target() -> None:
    with pytest.raises(GraphcError, match="G0108"):
        outputs("x[0] = 1.0\nreport r = sum(x)")
