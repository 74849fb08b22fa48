"""Optimizers, their schedules and transforms: frozen records that build updates."""

from graphc.ops.optimizers import base, kinds, loss_scale, schedules

__all__ = ["base", "kinds", "loss_scale", "schedules"]
