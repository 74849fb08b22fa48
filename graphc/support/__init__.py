"""What every floor stands on and what knows nothing of graphs: errors, files, configuration."""
