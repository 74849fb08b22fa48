"""From the instructions of a program to nodes: what each op is to a loop nest."""
