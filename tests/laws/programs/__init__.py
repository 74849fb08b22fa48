"""Random NumPy functions, each both a program for graphc and its own oracle.

A seed makes a function as text (`grow`): a list of assignments, tried on arrays while they are
drawn. NumPy runs it, and graphc traces, differentiates, compiles and runs it (`judge`); all must
agree. A program that fails is cut down to the fewest statements that fail too (`shrink`), and is
printed as a function that can be pasted. `python -m laws.programs 0 1000` (in `tests/`) tries
seeds.
"""
