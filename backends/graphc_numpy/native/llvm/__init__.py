"""The layer over llvmlite: vectors, expressions, objects on disk."""
