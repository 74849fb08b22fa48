"""Optimizers, their schedules and transforms: frozen records that build updates."""

from graphc.ops.optimizers import loss_scale, optimizer, schedules, update_rules

__all__ = ["loss_scale", "optimizer", "schedules", "update_rules"]
