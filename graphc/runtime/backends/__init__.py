"""What a backend is, how one is found, and the executors that need no compiler."""
