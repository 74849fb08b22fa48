"""The Program: instructions over planned buffers, which every backend runs."""
