"""Law: traced NumPy functions are NumPy's at awkward numbers, on short batches, in f64."""

from __future__ import annotations

from laws import numerics


def test_functions_are_numpys_at_awkward_numbers() -> None:
    numerics.check_ranges()


def test_the_size_of_a_short_batch_is_its_own() -> None:
    numerics.check_sizes()


def test_a_step_of_f64_is_computed_in_f64() -> None:
    numerics.check_dtypes()
