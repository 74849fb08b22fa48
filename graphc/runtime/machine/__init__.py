"""What graphc needs of the machine: memory, BLAS threads, signals."""
