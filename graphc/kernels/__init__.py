"""Kernels: what a backend prints. Programs are lowered to loop nests here, once for all backends."""
