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
from graphc.support.caller import user_span
from graphc.support.calls import TOO_MANY, explain_classes, explained
from graphc.support.errors import UnknownNameError, did_you_mean

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


_WORDS = {  # arguments of others
    "batch_size": "it is called size=: source.batches(32)",
    "buffer_size": "leave it out: a shuffle is over all examples, batches(32, shuffle=0)",
    "seed": "it is called shuffle=, a seed: source.batches(32, shuffle=0)",
    "drop_remainder": "it is called drop_last=",
    "num_workers": "write source.batches(32).prefetch(4, workers=2)",
    "num_parallel_calls": "write batches.map(function).prefetch(4, workers=2)",
    "test_size": "write source.split(0.9), the fraction of the first side",
    "usecols": "it is called columns=, a mapping: {'x': ['a', 'b'], 'y': 'label'}",
    "sep": "it is called delimiter=",
    "collate_fn": "write batches.map(function)",
    TOO_MANY: "entries are in one dict: graphc.data.arrays({'x': x, 'y': y})",
}
_ELSEWHERE = {
    "DataLoader": "write graphc.data.of(dataset).batches(32, shuffle=0)",
    "Dataset": "write graphc.data.arrays({'x': x, 'y': y}), or of(dataset)",
    "TensorDataset": "write graphc.data.arrays({'x': x, 'y': y})",
    "from_tensor_slices": "write graphc.data.arrays({'x': x, 'y': y})",
    "from_generator": "give the generator to fit, or a function that makes one",
    "random_split": "write source.split(0.9, seed=0)",
    "train_test_split": "write source.split(0.9, seed=0)",
    "read_csv": "write graphc.data.csv(path, {'x': ['a', 'b'], 'y': 'label'})",
}

arrays, csv, npy = explained(_WORDS)(arrays), explained(_WORDS)(csv), explained(_WORDS)(npy)
npz, parquet, of = explained(_WORDS)(npz), explained(_WORDS)(parquet), explained(_WORDS)(of)
explain_classes([DataSource], _WORDS, ("batches", "take", "split", "__getitem__"))
explain_classes([Batches], _WORDS, ("map", "prefetch", "bucket_by_length", "at"))


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(name)
    help = _ELSEWHERE.get(name) or did_you_mean(name, __all__) or f"there are: {', '.join(__all__)}"
    text = f"graphc.data has no '{name}'"
    raise UnknownNameError("G0836", text, span=user_span(), help=help)
