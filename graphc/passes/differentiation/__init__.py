"""From losses to gradients and updates, and from per-replica values to global ones."""
