"""From files to batches, and from a batch to the part of each device and microbatch."""
