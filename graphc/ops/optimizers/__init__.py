"""Optimizers, their schedules and transforms: frozen records that build updates."""
