"""Elementwise functions as machine code."""
