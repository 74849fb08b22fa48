"""The intermediate representation: types, placements, graphs, the base of ops, the builder."""
