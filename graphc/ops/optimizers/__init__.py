"""Optimizers, their schedules and transforms: frozen records that build updates."""

from graphc.ops.optimizers import (
    groups,
    hyper,
    loss_scale,
    optimizer,
    schedules,
    transforms,
    update_rules,
)
from graphc.ops.optimizers.learning_rate import accept_learning_rate

__all__ = [
    "groups", "hyper", "loss_scale", "optimizer", "schedules", "transforms",
    "update_rules",
]  # fmt: skip

accept_learning_rate()
