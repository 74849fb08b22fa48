"""The text of the .gc language: to a syntax tree, and back to one spelling."""
