"""From a partitioned graph to a Program: phases, buffers, arena."""
