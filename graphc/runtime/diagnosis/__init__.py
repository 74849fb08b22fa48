"""Diagnosis: where a NaN, a wrong index or an internal failure comes from."""
