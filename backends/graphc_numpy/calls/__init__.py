"""The path without native code: a program as a list of NumPy calls."""
