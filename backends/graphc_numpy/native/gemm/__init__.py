"""Matrix products as machine code: packing, register tiles, epilogues."""
