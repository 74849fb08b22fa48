"""The intermediate representation: types, placement, ops' base, graphs, and the builder."""
