"""Loop nests as machine code."""
