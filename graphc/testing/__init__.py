"""The conformance suite: what every backend must do, run by `pytest --pyargs graphc.testing`.

    pytest --pyargs graphc.testing --backend NAME

runs every op's samples, small programs with every conversion, loops, short batches and whole
training steps on the backend, against the reference.
"""
