"""From placements to collectives and loops over microbatches."""
