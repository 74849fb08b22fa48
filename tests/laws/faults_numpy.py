"""Faults of the NumPy front end: functions at their ends, the size of the batch, dtypes.

The laws over random graphs are of ops, on numbers of moderate size and steps that no function was
traced for; none of these faults is in a graph once it is made.
"""

from __future__ import annotations

from typing import Any

from laws.fault import Patch, fault

from graphc.frontend import run_time_length
from graphc.frontend.numpy import length, trace
from graphc.frontend.numpy.arguments import TraceRequest
from graphc.ir.registry import COMPOSITES
from graphc.ir.types import F32


@fault("ranges")
def _logaddexp_by_softplus(patch: Patch) -> None:
    """logaddexp is b + softplus(a - b), which is not NumPy's where the two are far apart."""

    def made(f: Any, a: Any, b: Any) -> Any:
        x, y = f.match(a, b)
        return y + f.softplus(x - y)

    patch.setitem(COMPOSITES, "logaddexp", made)


@fault("ranges")
def _hypot_by_squares(patch: Patch) -> None:
    """hypot squares its operands as they are."""
    patch.setitem(COMPOSITES, "hypot", lambda f, a, b: f.sqrt(f.square(a) + f.square(b)))


@fault("ranges")
def _cosh_by_whole_powers(patch: Patch) -> None:
    """cosh is half a sum, which overflows before the half does."""
    patch.setitem(COMPOSITES, "cosh", lambda f, x: 0.5 * (f.exp(x) + f.exp(-x)))


@fault("ranges")
def _arccosh_by_a_square(patch: Patch) -> None:
    """arccosh squares a large operand."""

    def made(f: Any, x: Any) -> Any:
        return f.log(x + f.sqrt((x - 1) * (x + 1)))

    patch.setitem(COMPOSITES, "arccosh", made)


@fault("sizes")
def _a_float_answers_for_the_size(patch: Patch) -> None:
    """A float to the left of the batch's size takes the compiled one."""
    patch.setattr(length, "computed", lambda function, a, b: function(a, b))


@fault("sizes")
def _a_plain_size_is_any_batchs(patch: Patch) -> None:
    """float(n) is taken for the size of every batch."""
    patch.setattr(length.Length, "_as_number", lambda self: run_time_length.static(self.number))


@fault("sizes")
def _a_range_is_any_batchs(patch: Patch) -> None:
    """A step is taken for the same one whatever a range over the batch has come to."""
    patch.setattr(trace, "_holds_for_another_size", lambda *_: True)


@fault("dtypes")
def _python_floats_are_f32(patch: Patch) -> None:
    """Python floats alone are f32 in a step of f64."""
    patch.setattr(TraceRequest, "float", property(lambda request: F32))
