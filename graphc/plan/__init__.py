"""The plan: everything that a training run needs, compiled, checked and written to one file."""
