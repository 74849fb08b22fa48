"""The training loop: epochs over data, or batches as they arrive."""
