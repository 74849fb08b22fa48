"""The description of kernels that a code generator prints, for any processor."""
