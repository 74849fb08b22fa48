"""Synchronous training: steps that all devices make together."""
