"""Calls that NumPy's own tests and torch's samples make of these functions, and what they found."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import numpy as np
import pytest

from graphc.support.errors import GraphcError

cases = SimpleNamespace(**run_path(str(Path(__file__).with_name("numpy_cases.py"))))
check, traced, real = cases.check, cases.traced, cases.real


def test_more_degrees_of_freedom_than_entries_give_no_negative_covariance() -> None:
    x = real(2, 3)
    for ddof in (2, 3, 5):
        check(lambda v, d=ddof: np.cov(v, ddof=d), x)
    check(np.cov, real(2, 0))


def test_too_few_numbers_for_the_degrees_of_freedom_give_nan() -> None:
    x = real(3, 4)
    x[0, 1:] = x[1, 2:] = np.nan
    for ddof in (1, 2, 3):
        for function in (np.nanvar, np.nanstd):
            check(lambda v, d=ddof, f=function: f(v, axis=1, ddof=d), x)


def test_no_difference_at_all_leaves_out_the_ends() -> None:
    check(lambda v: np.diff(v, n=0, prepend=0.0, append=1.0), real(3, 4))


def test_coordinates_of_integers_do_not_wrap_around() -> None:
    x = real(3)
    for down in (np.array([3, 2, 1], np.uint8), np.array([-1, 2**31 - 1, 0], np.int32)):
        check(lambda v, d=down: np.gradient(v, d.astype(np.float64)), x)
        check(lambda v, d=down: np.gradient(v, d), x, rtol=1e-6)  # such coordinates are f32
        check(np.gradient, x, down, rtol=1e-6)


def test_odd_reflections_are_refused_while_tracing() -> None:
    """Else the step fails when it runs: -1 is no entry to look up."""
    check(lambda v: np.pad(v, 2, "reflect", reflect_type="even"), real(4))
    with pytest.raises(GraphcError, match="reflect_type='even' only"):
        traced(lambda v: np.pad(v, 2, "reflect", reflect_type="odd"), real(4))
