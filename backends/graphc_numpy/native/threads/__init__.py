"""Threads that share a step, and how they wait for each other."""
