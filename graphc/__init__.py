"""graphc: a dataflow-graph compiler for training steps."""
