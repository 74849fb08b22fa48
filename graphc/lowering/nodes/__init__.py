"""From the instructions of a program to nodes: the form of each op in a loop nest."""
