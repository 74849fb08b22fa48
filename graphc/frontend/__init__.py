"""What users write, as graphs: the .gc language and traced NumPy functions."""
