"""Facts about graphs that several passes ask for. Nothing here changes a graph."""
