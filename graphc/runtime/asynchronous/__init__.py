"""Asynchronous training: workers pull variables and push gradients, servers apply each as it comes.

    roles      coordinator, server, worker: state machines, a message in, messages out
    messages   what they say to each other; each may come twice, late, or never
    threads    one driver of the roles: a thread each, in one process
    simulate   another one: virtual time, with delays, drops, duplicates and deaths
    schedule   the record of a run: who applied what when; and its replay

The roles share nothing. Whatever carries their messages, over threads, processes or machines, a
push is applied once, by all servers in one order, and from variables that are at most `staleness`
updates old.
"""
