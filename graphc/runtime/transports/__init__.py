"""What moves bytes between ranks, and threads of one process as devices."""
