"""The interface of backends, how they are found, and the executors that need no compiler."""
