"""Limits and choices that several floors check."""

MAX_DEVICES = 1024  # that threads of one process stand for
SHARD_POLICIES = ("data", "file", "off", "auto")  # how an epoch is dealt to the replicas
