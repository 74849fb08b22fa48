"""From losses to gradients and updates, and from replicas' values to global ones."""
