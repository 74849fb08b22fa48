"""The program: instructions over planned buffers, which every backend runs."""
