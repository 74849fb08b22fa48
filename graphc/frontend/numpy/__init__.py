"""The tracer: makes a graph of an ordinary NumPy function."""
