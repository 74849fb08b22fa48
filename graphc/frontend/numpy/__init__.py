"""The tracer: an ordinary NumPy function becomes a graph."""
