"""Kernels: programs lowered to loop nests, once for all backends, which print them."""
