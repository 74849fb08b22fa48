"""The layer over LLVM that backends share: values, memory, elementwise functions, statements."""
