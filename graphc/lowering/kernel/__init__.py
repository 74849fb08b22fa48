"""The description of kernels that code generators print, for any processor."""
