"""What a batch must be, and the words of the errors where it is not."""

import numpy as np
import pytest

from graphc.ir.builder import Builder
from graphc.ir.types import BF16, F32, I32, DType
from graphc.lowering.program.program import Program
from graphc.lowering.schedule.schedule import schedule
from graphc.runtime.data.batches import check_batch
from graphc.support.errors import GraphcError
from graphc.testing.models import entry


def program(exact: bool = False, dtype: DType = F32) -> Program:
    f = Builder("p")
    x, y = entry(f, "x", (8, 3), dtype), entry(f, "y", (8,), I32)
    f.outputs["x"], f.outputs["y"] = f.neg(x).name, f.neg(y).name
    return schedule(f.build(), exact=exact)


def batch(n: int = 8) -> dict[str, np.ndarray]:
    return {"x": np.ones((n, 3), np.float32), "y": np.zeros(n, np.int32)}


def test_a_batch_of_the_right_arrays_is_taken_as_it_is() -> None:
    given = batch()
    arrays, counts = check_batch(program(), given)
    assert arrays["x"] is given["x"]
    assert counts == {"batch": 8}


def test_a_short_batch_says_how_many_examples_it_has() -> None:
    assert check_batch(program(), batch(5))[1] == {"batch": 5}


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"y": None}, "G0611", "no entry 'y'"),
        ({"z": np.zeros(8)}, "G0612", "no input 'z'"),
        (
            {"x": np.ones((8, 4))},
            "G0613",
            r"'x' has shape \(8, 4\), the step takes \[batch<=8, 3\]",
        ),
        ({"x": np.ones(8)}, "G0613", r"'x' has shape \(8,\)"),
        ({"y": np.zeros(8)}, "G0614", "'y' is an array of float64, the step takes i32"),
        ({"y": np.full(8, 2**40)}, "G0614", "'y' has values that do not fit into i32"),
        ({"x": np.array([["a"] * 3] * 8)}, "G0614", "'x' is an array of <U1"),
        ({"x": np.ones((9, 3))}, "G0615", "'x' has 9 entries of 'batch', more than 8"),
        ({"x": np.ones((7, 3))}, "G0616", "'y' has 8 entries of 'batch', another entry has 7"),
    ],
)
def test_what_does_not_fit_is_named(change: dict, code: str, message: str) -> None:
    given = {k: v for k, v in (batch() | change).items() if v is not None}
    with pytest.raises(GraphcError, match=message) as error:
        check_batch(program(), given)
    assert error.value.code == code


def test_a_misspelt_entry_gets_a_hint() -> None:
    with pytest.raises(GraphcError, match=r"no input 'xx'[\s\S]*did you mean 'x'"):
        check_batch(program(), batch() | {"xx": np.zeros(8)})


def test_an_empty_batch_is_an_error() -> None:
    with pytest.raises(GraphcError, match="the batch is empty: 'batch' has no example"):
        check_batch(program(), batch(0))


def test_a_batch_that_is_no_dict_is_an_error() -> None:
    with pytest.raises(GraphcError, match="a batch is a dict of arrays, not a ndarray"):
        check_batch(program(), np.ones((8, 3)))  # type: ignore[arg-type]


def test_a_program_for_full_batches_takes_no_short_one() -> None:
    check_batch(program(exact=True), batch())
    with pytest.raises(GraphcError, match=r"'x' has shape \(5, 3\), the step takes \[8, 3\]"):
        check_batch(program(exact=True), batch(5))


@pytest.mark.parametrize("kind", [np.float64, np.int64, np.uint8, bool])
def test_values_are_cast_within_their_kind_and_upwards(kind: type) -> None:
    check_batch(program(), batch() | {"x": np.ones((8, 3), kind)})
    check_batch(program(dtype=BF16), batch() | {"x": np.ones((8, 3), kind)})
