"""Strategies compared by measuring them on the user's program and data: `graphc compare`."""
