"""Native regions of a program, and where their buffers lie."""
