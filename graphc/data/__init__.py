"""Sources of training data, larger than memory or not, and the batches that they give.

    digits = graphc.data.npy({"x": "x.npy", "y": "y.npy"})
    train, test = digits.split(0.9, seed=0)
    trainer.fit(train.batches(256, shuffle=0).prefetch(2), epochs=10)

A source gives any of its examples by number, so that a shuffle is over all of them, the same on
every machine, and a training resumes in the middle of an epoch. No file is trusted: nothing is
unpickled, and no message repeats what a file contains, except the names of entries.
"""

from __future__ import annotations

from typing import NoReturn

from graphc.data.batches import Batches
from graphc.data.csv_file import csv
from graphc.data.in_memory import arrays
from graphc.data.npy_files import npy
from graphc.data.npz_files import npz
from graphc.data.parquet_files import parquet
from graphc.data.rows import of
from graphc.data.source import DataSource
from graphc.runtime.data.dataset import Position
from graphc.support.calls import explain_classes, explained
from graphc.support.unknown_names import help_for, unknown_name

__all__ = [
    "Batches",
    "DataSource",
    "Position",
    "arrays",
    "csv",
    "npy",
    "npz",
    "of",
    "parquet",
]


_explained = explained("data_arguments")
arrays, csv, npy = _explained(arrays), _explained(csv), _explained(npy)
npz, parquet, of = _explained(npz), _explained(parquet), _explained(of)
explain_classes([DataSource], "data_arguments", ("batches", "take", "split", "__getitem__"))
explain_classes([Batches], "data_arguments", ("map", "prefetch", "bucket_by_length", "at"))


def __getattr__(name: str) -> NoReturn:
    text = f"graphc.data has no '{name}'"
    raise unknown_name(text, name, lambda: help_for(name, "data", __all__))
