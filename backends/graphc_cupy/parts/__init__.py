"""Kernels that are launched in several parts, so that enough threads have something to do."""
