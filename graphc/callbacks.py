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

from typing import TYPE_CHECKING, NoReturn

from graphc.runtime.callbacks.base import Callback
from graphc.runtime.callbacks.best import BestCheckpoint, EarlyStopping
from graphc.runtime.callbacks.logs import CsvLog, JsonLog, TensorBoard
from graphc.runtime.callbacks.progress import ProgressBar
from graphc.runtime.callbacks.rate import LearningRate, ReduceLROnPlateau
from graphc.support.calls import explain_classes
from graphc.support.unknown_names import help_for, unknown_name

__all__ = [
    "BestCheckpoint",
    "Callback",
    "CsvLog",
    "EarlyStopping",
    "JsonLog",
    "LearningRate",
    "ProgressBar",
    "ReduceLROnPlateau",
    "TensorBoard",
]

if not TYPE_CHECKING:  # where a type checker says it better

    def __getattr__(name: str) -> NoReturn:
        text = f"graphc.callbacks has no '{name}'"
        raise unknown_name(text, name, lambda: help_for(name, "callbacks", __all__))


explain_classes((globals()[name] for name in __all__), "callbacks_arguments")
