"""erf in NumPy is that of the C library to the last places, everywhere."""

from math import erf as exact

import numpy as np
import pytest

from graphc.ir.types import BF16, F16, F32, F64, DType
from graphc.ops.erf import erf

POINTS = np.concatenate(
    [np.linspace(-7, 7, 20_001), [0.46875, -0.46875, 4.0, 6.0, 1e-300, 1e-20, 1e300]]
)


def test_erf_is_exact_to_a_few_units_in_the_last_place() -> None:
    expected = np.array([exact(v) for v in POINTS])
    np.testing.assert_allclose(erf(POINTS), expected, rtol=1e-15, atol=0)


def test_erf_at_the_ends_and_of_nan() -> None:
    with np.errstate(all="raise"):
        assert erf(np.array([np.inf, -np.inf, 0.0])).tolist() == [1, -1, 0]
        assert np.signbit(erf(np.array(-0.0)))
        assert np.isnan(erf(np.array(np.nan)))


@pytest.mark.parametrize("dtype", [F64, F32, F16, BF16], ids=str)
def test_erf_keeps_shape_and_dtype(dtype: DType) -> None:
    for shape in ((), (0,), (2, 3)):
        y = erf(np.full(shape, 0.5, dtype.numpy))
        assert (y.shape, y.dtype) == (shape, dtype.numpy)
