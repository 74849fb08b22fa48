"""Some examples of a batch, with zeros in the place of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphc.data.entries import Array, Entries, Index, numbers_of

if TYPE_CHECKING:
    from graphc.data.source import DataSource
    from graphc.runtime.data.own_examples import Wanted


def in_part(source: DataSource, index: slice | Index, wanted: Wanted) -> Entries:
    """The examples of a batch of which only those that are wanted are read.

    What is not written of the zeros takes no memory. An entry of lists of different lengths is read
    whole.
    """
    numbers = numbers_of(index, len(source))
    spans = wanted(len(numbers))
    if sum(end - start for start, end in spans) == len(numbers):
        return source.rows(index)
    chosen = [numbers[start:end] for start, end in spans]
    read = source.rows(np.concatenate(chosen) if chosen else numbers[:0])
    if any(a.dtype == object for a in read.values()):
        return source.rows(index)
    made: dict[str, Array] = {}
    for name, rows in read.items():
        made[name], at = np.zeros((len(numbers), *rows.shape[1:]), rows.dtype), 0
        for start, end in spans:
            made[name][start:end] = rows[at : at + end - start]
            at += end - start
    return made
