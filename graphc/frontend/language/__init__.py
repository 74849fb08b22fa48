"""The .gc language: from the syntax tree of a file to the graphs of its step."""
