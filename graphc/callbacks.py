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

_ELSEWHERE = {
    "CSVLogger": "CsvLog(path)",
    "LambdaCallback": "a function of (epoch, metrics), or a class on top of Callback",
    "LearningRateMonitor": "the optimizer's reports of its rate",
    "LearningRateScheduler": "LearningRate(schedule), or a schedule as the optimizer's rate",
    "ModelCheckpoint": "BestCheckpoint(path), or fit(..., checkpoint=graphc.Checkpoints(folder))",
    "TQDMProgressBar": "fit(..., progress=True)",
}


if not TYPE_CHECKING:  # where a type checker says it better

    def __getattr__(name: str) -> NoReturn:
        hint = (
            f"it is {_ELSEWHERE[name]} here" if name in _ELSEWHERE else did_you_mean(name, __all__)
        )
        if name.startswith("__"):
            raise AttributeError(name)
        known = hint or f"there are: {', '.join(__all__)}"
        text = f"graphc.callbacks has no '{name}'"
        raise UnknownNameError("G0836", text, span=user_span(), help=known)


_WORDS = {  # arguments of others
    "filepath": "it is called path=",
    "dirpath": "it is called path=",
    "filename": "it is called path=",
    "log_dir": "it is called folder=",
    "restore_best_weights": "it is called restore_best=",
    "save_best_only": "leave it out: BestCheckpoint keeps the best; for others write fit(..., "
    "checkpoint=graphc.Checkpoints(folder))",
    "save_weights_only": "leave it out: a checkpoint is the whole training; trainer.load(path, "
    "partial=True) takes its params alone",
    "save_freq": "write fit(..., checkpoint=graphc.Checkpoints(folder, every=100))",
    "verbose": "leave it out: fit(..., progress=True) shows the metrics",
    "baseline": "write a callback that calls self.trainer.stop()",
    "update_freq": "it is called every=",
    "threshold": "it is called min_delta=",
    "epsilon": "it is called min_delta=",
    "optimizer": "leave it out: the rate is graphc.hyper('lr', 1e-3) in graphc.compile",
}
explain_classes((globals()[name] for name in __all__), _WORDS)
