"""Asynchronous training: workers pull variables and push gradients, servers apply every push.

    roles      coordinator, server, worker: state machines, a message in, messages out
    messages   what they send each other; each message may arrive twice, late, or never
    drivers    what starts the roles and carries their messages, and what follows when one ends
    threads    the driver that runs the roles as threads of one process
    journal    what a server writes down, to come back from it when it was killed
    recordings the recording of a run (which push was applied when), and its replay

The roles share nothing. Whatever transports their messages, every push is applied exactly once, by
all servers in the same order, and was computed from variables that are at most `staleness` updates
old.
"""
