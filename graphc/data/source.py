"""What a source of data is: examples by number, as entries with a row for each of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, final

import numpy as np

from graphc.data.batches import Batches, in_order, no_such_name
from graphc.data.entries import Entries, Index
from graphc.runtime.data.sharding import shuffled
from graphc.support.errors import GraphcError
from graphc.support.random import checked_seed


class DataSource(ABC):
    """Examples by number.

    names: of the entries; () for examples that are not dicts: tuples, or single arrays
    parts: the number of examples of each part that is read whole (a file, a row group); () where
           each example is read by itself
    """

    names: tuple[str, ...] = ()
    parts: tuple[int, ...] = ()
    kept: int = 1  # how many parts stay in memory
    apart: bool = False  # whether the fewer examples are asked for, the less is read

    @abstractmethod
    def __len__(self) -> int:
        """The number of examples."""

    def __getattr__(self, name: str) -> NoReturn:
        raise no_such_name("a source", name, "source")

    @abstractmethod
    def rows(self, index: slice | Index) -> Entries:
        """Some examples, in this order: memory of their own.

        An entry whose examples differ in shape is an array of arrays (dtype object). Raises
        G0602-G0605.
        """

    def example_form(self, entries: Mapping[str, Any]) -> Any:
        """Entries in the form of an example: a dict, a tuple or one array."""
        return dict(entries)

    def __getitem__(self, which: int | slice | Sequence[int]) -> Any:
        """An example, or several: `source[3]`, `source[2:5]`, `source[[7, 1]]`."""
        n = len(self)
        if isinstance(which, slice):
            return self.example_form(self.rows(np.arange(*which.indices(n))))
        if isinstance(which, str):
            text = f"a source gives examples by number, not entries by name: [{which!r}]"
            raise GraphcError("G0637", text, help=f"write source[0][{which!r}], or source.batches")
        index = np.asarray(which, np.int64)
        index = np.where(index < 0, index + n, index)
        if np.any((index < 0) | (index >= n)):
            raise IndexError(f"there are {n:,} examples, from 0 to {n - 1:,}")
        entries = self.rows(np.atleast_1d(index))
        chosen = entries if index.ndim else {name: a[0] for name, a in entries.items()}
        return self.example_form(chosen)

    def __iter__(self) -> Iterator[Any]:
        """Refuse: whoever goes over a source, `fit` too, wants its batches. Raises G0637."""
        text = "a source gives examples by number; it is not batches"
        raise GraphcError("G0637", text, help="go over source.batches(256, shuffle=0)")

    @final
    def batches(
        self, size: int, *, shuffle: int | None = None, drop_last: bool = False,
        blocks: int | None = None,
    ) -> Batches:  # fmt: skip
        """Batches of `size` examples; the last of an epoch has the remaining ones.

        shuffle:   the seed of the order; each epoch has another one, which depends on the seed and
                   the number of the epoch only. None: the order of the source
        drop_last: leave out the short batch at the end
        blocks:    shuffle the parts (files, row groups), and the examples of so many of them
                   with each other, so that no more need to be in memory

        Raises G0617 for sizes below 1, and if there would be no batch at all.
        """
        return in_order(self, size, shuffle, drop_last, blocks)

    @final
    def take(self, n: int) -> DataSource:
        """The first n examples."""
        return _Subset(self, slice(0, min(n, len(self))))

    @final
    def split(self, fraction: float, seed: int | None = 0) -> tuple[DataSource, DataSource]:
        """Two sources: one has this fraction of the examples, chosen by the seed; the other has
        the rest. Both keep the order. seed=None: the first ones, and the last ones.

        Raises G0603 unless both have an example.
        """
        n = len(self)
        first = round(n * fraction)
        if not 0 < first < n:
            text = f"split({fraction}) of {n:,} examples leaves one side empty"
            raise GraphcError("G0603", text, help="give the fraction of the first side: split(0.9)")
        if seed is None:
            return _Subset(self, slice(0, first)), _Subset(self, slice(first, n))
        order = shuffled(n, checked_seed(seed), 0)
        return _Subset(self, np.sort(order[:first])), _Subset(self, np.sort(order[first:]))


class _Subset(DataSource):
    """Some examples of another source, in its order."""

    def __init__(self, of: DataSource, chosen: slice | Index) -> None:
        self._of, self._chosen = of, chosen
        self.names, self.kept, self.apart = of.names, of.kept, of.apart
        bounds = np.cumsum((0, *of.parts))
        if isinstance(chosen, slice):
            counts = np.diff(np.clip(bounds, chosen.start, chosen.stop))
        else:
            counts = np.diff(np.searchsorted(chosen, bounds))
        self.parts = tuple(map(int, counts))

    def __len__(self) -> int:
        chosen = self._chosen
        return chosen.stop - chosen.start if isinstance(chosen, slice) else len(chosen)

    def rows(self, index: slice | Index) -> Entries:
        chosen = self._chosen
        if not isinstance(chosen, slice):
            return self._of.rows(chosen[index])
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            return self._of.rows(slice(chosen.start + start, chosen.start + stop))
        return self._of.rows(index + chosen.start)

    def example_form(self, entries: Mapping[str, Any]) -> Any:
        return self._of.example_form(entries)
