"""The native path: a step as machine code, compiled with llvmlite."""
