"""What one step has that another hasn't: `graphc diff`."""
