"""What graphc asks of the machine: memory, BLAS threads, signals."""
