"""Scheduling: from a partitioned graph to a Program, with phases, buffers and the arena."""
