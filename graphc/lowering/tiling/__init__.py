"""Row tiling: kernels that pass rows of large values to each other run together, tile by tile."""
