"""The conformance suite: what every backend must do.

    pytest --pyargs graphc.testing --backend NAME

runs on the backend the samples of every op, small programs with every conversion, loops, short
batches and whole training steps, and compares the results with the reference's.
"""
