"""The lowest floor, which knows nothing of graphs: errors, files, configuration."""
