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
from graphc.support.caller import user_span
from graphc.support.calls import explain_classes
from graphc.support.errors import UnknownNameError, did_you_mean
from graphc.support.hints import hints

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
        hint = hints("callbacks").get(name) or did_you_mean(name, __all__)
        if name.startswith("__"):
            raise AttributeError(name)
        known = hint or f"there are: {', '.join(__all__)}"
        text = f"graphc.callbacks has no '{name}'"
        raise UnknownNameError("G0836", text, span=user_span(), help=known)


explain_classes((globals()[name] for name in __all__), "callbacks_arguments")
