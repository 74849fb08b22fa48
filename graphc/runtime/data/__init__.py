"""From files to batches, and from a batch to the shard of each device and microbatch."""
