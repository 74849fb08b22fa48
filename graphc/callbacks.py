"""Callbacks: what happens besides the steps of a training.

history = trainer.fit(
    batches, epochs=20, validation=test_batches,
    callbacks=[lambda epoch, metrics: print(epoch, metrics["val_loss"])],
)

A callback of your own is a class on top of `Callback`, or a function of (epoch, metrics).
"""

from graphc.runtime.callbacks.base import Callback
from graphc.runtime.callbacks.progress import ProgressBar

__all__ = ["Callback", "ProgressBar"]
