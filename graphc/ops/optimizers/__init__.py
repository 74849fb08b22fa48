"""Optimizers, their schedules and transforms: frozen records that build updates."""

from graphc.ops.optimizers import hyper, loss_scale, optimizer, schedules, update_rules
from graphc.ops.optimizers.learning_rate import accept_learning_rate

__all__ = ["hyper", "loss_scale", "optimizer", "schedules", "update_rules"]

accept_learning_rate()
