"""Kernels that hand rows of large values on to each other, tile by tile."""
