"""The path without machine code: a program as a list of NumPy calls."""
