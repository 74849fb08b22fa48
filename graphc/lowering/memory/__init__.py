"""Native regions of a program, and the memory of their buffers."""
