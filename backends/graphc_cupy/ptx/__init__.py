"""Kernels as PTX, the assembly of NVIDIA's GPUs: LLVM makes it from the IR that is printed here."""
