"""From placements to conversions, collectives and loops over microbatches."""
