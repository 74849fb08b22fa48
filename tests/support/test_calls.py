"""Calls with other arguments than a function has are answered in the words of graphc."""

from __future__ import annotations

import pytest

import graphc
from graphc.support.calls import WrongCallError, explained
from graphc.support.errors import GraphcError


@explained("trainer_arguments")
def dense(width: int, bias: bool = True) -> int:
    if width < 0:
        raise GraphcError("G0206", "a width is not negative")
    return int(width) + bias


class Layer:
    @explained()
    def __init__(self, width: int) -> None:
        self.width = width + "a"  # type: ignore[operator]


def test_a_good_call_is_as_without() -> None:
    assert dense(3) == dense(width=3, bias=True) == 4
    assert dense.__name__ == "dense"


@pytest.mark.parametrize(
    "args, options, reason, help",
    [
        ((), {"filepath": 3}, "there is no argument 'filepath'", "it is called path="),
        ((3,), {"widht": 3}, "there is no argument 'widht'", "did you mean 'width'?"),
        ((3,), {"zz": 3}, "there is no argument 'zz'", "it takes width, bias="),
        ((), {}, "missing a required argument: 'width'", "it takes width, bias="),
        (
            (1, 2, 3),
            {},
            "too many positional arguments",
            "inputs and targets are in one batch: {'x': x, 'y': y}",
        ),
    ],
)
def test_a_wrong_call_says_what_the_arguments_are_called(
    args: tuple[int, ...], options: dict[str, int], reason: str, help: str
) -> None:
    with pytest.raises(WrongCallError) as caught:
        dense(*args, **options)
    error = caught.value
    assert (error.code, error.message, error.help) == ("G0839", f"dense: {reason}", help)
    assert error.span is not None and error.span.file == __file__
    assert isinstance(error, TypeError)


def test_an_error_inside_gets_the_place_of_the_call() -> None:
    with pytest.raises(GraphcError, match=r"(?s)G0206.*test_calls.py.*dense\(-1\)"):
        dense(-1)


def test_a_type_error_inside_of_the_function_stays_as_it_is() -> None:
    with pytest.raises(TypeError, match="unsupported operand") as caught:
        Layer(3)
    assert not isinstance(caught.value, GraphcError)
    with pytest.raises(WrongCallError, match="Layer: there is no argument 'units'"):
        Layer(units=3)  # type: ignore[call-arg]


def test_signatures_stay_as_they_are() -> None:
    import inspect

    assert [*inspect.signature(graphc.layers.Dense).parameters][:2] == ["inputs", "outputs"]
    assert "example_batch" in inspect.signature(graphc.compile).parameters
