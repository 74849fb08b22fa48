"""The .gc language: text to syntax tree to graph, and back to text."""
