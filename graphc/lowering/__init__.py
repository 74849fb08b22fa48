"""Lowering: from a placed graph to a program, and from a program to kernels that backends print."""
