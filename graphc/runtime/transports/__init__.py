"""Transports: they move bytes between ranks. Here: threads of one process as devices."""
