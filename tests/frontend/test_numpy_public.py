"""All public functions of NumPy: each traces, or says that it can't be traced."""

from __future__ import annotations

from inspect import signature
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphc.frontend.numpy import table, ufuncs
from graphc.frontend.numpy.trace import record
from graphc.ir.registry import ARRAY_FUNCTIONS
from graphc.support.errors import GraphcError

cases = SimpleNamespace(**run_path(str(Path(__file__).with_name("numpy_cases.py"))))
traced, words, real, V = cases.traced, cases.words, cases.real, cases.V

_OTHER_CASES = words(
    "invert bitwise_and bitwise_or bitwise_xor left_shift right_shift logical_and logical_or logical_xor round around "
    "modf ldexp divmod cumsum cumprod nancumsum nancumprod cumulative_sum cumulative_prod diff "
    "ediff1d trapezoid cov corrcoef quantile percentile partition argpartition empty_like "
    "result_type array_repr array_str array2string row_stack"
)

# What never gets to see a traced array, or is not about arrays.
EXEMPT = set(
    words(
        "arange bartlett base_repr binary_repr blackman broadcast_shapes busday_count "
        "busday_offset datetime_as_string datetime_data diag_indices empty eye "
        "format_float_positional format_float_scientific from_dlpack frombuffer fromfile "
        "fromfunction fromiter frompyfunc fromregex fromstring full genfromtxt get_include "
        "get_printoptions getbufsize geterr geterrcall hamming hanning identity indices info "
        "is_busday isdtype isscalar issubdtype iterable kaiser load loadtxt mask_indices "
        "mintypecode nested_iters ones printoptions promote_types set_printoptions setbufsize "
        "seterr seterrcall show_config show_runtime test tri tril_indices triu_indices "
        "typename zeros require"
    )
)


def _public() -> list[str]:
    names = [n for n in dir(np) if not n.startswith("_")]
    found = [n for n in names if callable(getattr(np, n)) and not isinstance(getattr(np, n), type)]
    linear = [f"linalg.{n}" for n in dir(np.linalg) if not n.startswith("_")]
    return [
        *found,
        *(n for n in linear if not isinstance(table.find(n), type) and n != "linalg.test"),
    ]


def _supported(name: str) -> bool:
    function = table.find(name)
    return function in table.TABLE or function in table.UFUNCS


PUBLIC = [n for n in _public() if callable(table.find(n))]


def test_at_least_a_hundred_functions_trace() -> None:
    assert len([n for n in PUBLIC if _supported(n)]) >= 250


def test_every_supported_function_is_compared_with_numpy() -> None:
    tested = {*cases.DOMAINS, *cases.BINARY, *cases.REDUCTIONS, *cases.CASES, *_OTHER_CASES}
    functions = {table.find(n) for n in tested}
    missing = [n for n in PUBLIC if _supported(n) and table.find(n) not in functions]
    assert missing == []


def _attempts(t: Any) -> list[tuple[Any, ...]]:
    i = np.array([0, 1])
    return [
        (t,), (t, t), (t, 1), ([t, t],), (1, t), (t, t, t), (i, t), (t, t > 0), (t > 0, t, t),
        (t, [t], [1]), (t, i, t), ("x", t), (abs, 0, t), (abs, t), ([2, 2], t), (t, [1, 2], 0),
        (t, i, t, 0),
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("name", [n for n in PUBLIC if not _supported(n) and n not in EXEMPT])
def test_other_functions_say_that_they_cannot_be_traced(name: str) -> None:
    function = table.find(name)
    messages: list[GraphcError] = []

    def step(params: Any, batch: Any) -> Any:
        for args in _attempts(batch["x"]):
            try:
                function(*args)
            except GraphcError as error:
                messages.append(error)
            except (
                TypeError,
                ValueError,
                AttributeError,
                np.linalg.LinAlgError,
                IndexError,
                NameError,
            ):
                pass
        return np.sum(batch["x"])

    record(step, {}, {"x": real(3, 3)})
    assert messages, f"np.{name} took a traced array and said nothing"
    assert all(e.code.startswith("G08") and e.span is not None for e in messages)
    refused = [e for e in messages if e.code == "G0802"]
    assert not refused or any(f"{function.__name__} can't" in e.message for e in refused)
    assert all(e.span and e.span.file == __file__ for e in messages)


def test_the_error_names_the_function_and_the_line_and_gives_advice() -> None:
    def step(params: Any, batch: Any) -> Any:
        return np.unique(batch["x"])

    with pytest.raises(GraphcError, match=r"np\.unique can't be traced") as caught:
        record(step, {}, {"x": real(3)})
    text = caught.value.render()
    assert "return np.unique(batch" in text and "depends on the values" in text


def test_methods_of_ufuncs_that_cannot_be_traced_say_so() -> None:
    for call, text in [
        (lambda x: np.add.reduceat(x, [0, 1]), r"np\.add\.reduceat"),
        (lambda x: np.subtract.accumulate(x), r"np\.subtract\.accumulate"),
        (lambda x: np.arctan2.reduce(x), r"np\.arctan2\.reduce"),
        (lambda x: np.frexp(x), r"np\.frexp"),
    ]:
        with pytest.raises(GraphcError, match=text):
            traced(call, V)


def test_every_handler_has_a_docstring() -> None:
    assert [n for n, h in table.NAMES.items() if not h.__doc__] == []
    assert ufuncs.handler(np.add, "__call__") is not None


def test_a_composite_that_is_a_numpy_function_has_the_parameters_of_it_in_order() -> None:
    for declared in ARRAY_FUNCTIONS:
        name, _, given = declared.signature.removesuffix(")").partition("(")
        if (function := table.find(name)) is not None:
            of_numpy = [p for p in signature(function).parameters if p not in ("order", "out")]
            assert of_numpy == [p for p in given.split(", ") if p != "*"], name


def test_a_composite_that_is_a_numpy_function_names_the_argument_that_it_cannot_read() -> None:
    with pytest.raises(GraphcError, match="axis2 must be an integer, not 'x'"):
        traced(lambda x: np.swapaxes(x, 0, "x"), V)  # type: ignore[arg-type]
    with pytest.raises(GraphcError, match="missing a required argument: 'axis2'"):
        traced(lambda x: x.swapaxes(0), V)
