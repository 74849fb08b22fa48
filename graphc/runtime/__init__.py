"""Training at run time: backends, devices, data, checkpoints."""
