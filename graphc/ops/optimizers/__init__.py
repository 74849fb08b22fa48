"""Optimizers, their schedules and transforms: frozen records that build updates."""

from graphc.ops.optimizers import hyper, loss_scale, optimizer, schedules, update_rules

__all__ = ["hyper", "loss_scale", "optimizer", "schedules", "update_rules"]
