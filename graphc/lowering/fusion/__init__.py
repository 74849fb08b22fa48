"""Fusion: groups of nodes that run as one kernel, and the code of that kernel."""
