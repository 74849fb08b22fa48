"""Decides the placement of every value: the state of each tensor along each mesh axis."""
