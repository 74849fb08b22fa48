"""A job of several processes: starting it, and saying which of them died or froze, and where.

`job` starts the processes through MPI's launcher; `watch` hears from all of them; `reporter` is
what a process tells; `supervise` puts these together, and ends what is left.
"""
