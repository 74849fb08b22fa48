"""Callbacks: what happens besides the steps of a training.

history = trainer.fit(
    batches, epochs=20, validation=test_batches,
    callbacks=[
        graphc.callbacks.EarlyStopping("val_loss", patience=3, restore_best=True),
        graphc.callbacks.CsvLog("runs/a.csv"),
        lambda epoch, metrics: print(epoch, metrics["val_loss"]),
    ],
)

A callback of your own is a class on top of `Callback`, or a function of (epoch, metrics).
"""

from graphc.runtime.callbacks.base import Callback
from graphc.runtime.callbacks.best import BestCheckpoint, EarlyStopping
from graphc.runtime.callbacks.logs import CsvLog, JsonLog, TensorBoard
from graphc.runtime.callbacks.progress import ProgressBar
from graphc.runtime.callbacks.rate import LearningRate

__all__ = [
    "BestCheckpoint",
    "Callback",
    "CsvLog",
    "EarlyStopping",
    "JsonLog",
    "LearningRate",
    "ProgressBar",
    "TensorBoard",
]
