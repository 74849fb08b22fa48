"""Reverse-mode differentiation of graphs, and what front ends make of it."""
