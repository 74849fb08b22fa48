"""The native path: a step as one function of machine code, made with llvmlite."""
