"""Sources of the same examples in every form, and what must be a clear error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphc import data
from graphc.data import npy_files

N = 203
ARRAYS = {
    "x": np.random.default_rng(0).standard_normal((N, 3)).astype(np.float32),
    "y": np.random.default_rng(1).integers(0, 1000, N).astype(np.int32),
}


class Rows:
    """A torch-like dataset of dicts."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {name: a[i] for name, a in ARRAYS.items()}


class RowsAtATime(Rows):
    """One that is asked for several rows at a time, as torch's and Hugging Face's are."""

    def __getitems__(self, several: list[int]) -> list[dict[str, Any]]:
        return [self[i] for i in several]


def npy(folder: Path) -> data.DataSource:
    for name, a in ARRAYS.items():
        np.save(folder / f"{name}.npy", a)
    return data.npy({name: folder / f"{name}.npy" for name in ARRAYS})


def fortran(folder: Path) -> data.DataSource:
    for name, a in ARRAYS.items():
        np.save(folder / f"{name}.npy", np.asfortranarray(a).astype(a.dtype.newbyteorder(">")))
    return data.npy({name: folder / f"{name}.npy" for name in ARRAYS})


def npz(folder: Path) -> data.DataSource:
    for number, (start, end) in enumerate([(0, 70), (70, 71), (71, 180), (180, N)]):
        save = np.savez if number % 2 else np.savez_compressed
        save(folder / f"part-{number}.npz", **{k: a[start:end] for k, a in ARRAYS.items()})
    return data.npz(folder, keep=9)


def csv(folder: Path) -> data.DataSource:
    lines = ["# a comment,,", "", *(
        f"{y},{a:.9g},{b:.9g},,{c:.9g}" + ("\r" if y % 2 else "")
        for (a, b, c), y in zip(ARRAYS["x"], ARRAYS["y"], strict=True)
    )]  # fmt: skip
    lines[100:100] = ["  ", "# another"]
    (folder / "a.csv").write_text("y, a,b,note,c\n" + "\n".join(lines))
    columns = {"x": ["a", "b", "c"], "y": "y"}
    return data.csv(folder / "a.csv", columns, dtype={"y": "int32"})


def parquet(folder: Path) -> data.DataSource:
    pa = pytest.importorskip("pyarrow")
    columns = {"y": ARRAYS["y"], **{f"x{i}": ARRAYS["x"][:, i] for i in range(3)}}
    import pyarrow.parquet as files

    files.write_table(pa.table(columns), folder / "a.parquet", row_group_size=60)
    return data.parquet(folder / "a.parquet", {"x": ["x0", "x1", "x2"], "y": "y"}, keep=9)


SOURCES: dict[str, Callable[[Path], data.DataSource]] = {
    "arrays": lambda _: data.arrays(ARRAYS),
    "npy": npy,
    "fortran": fortran,
    "npz": npz,
    "csv": csv,
    "parquet": parquet,
    "rows": lambda _: data.of(Rows()),
    "rows at a time": lambda _: data.of(RowsAtATime()),
}


LARGE = {"npy": "a large npy", "fortran": "a large fortran"}


@pytest.fixture(params=[*SOURCES, *LARGE.values()])
def source(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> data.DataSource:
    """The examples of ARRAYS, from every kind of source."""
    if request.param in LARGE.values():
        monkeypatch.setattr(npy_files, "SMALL", 100)
    return SOURCES[request.param.removeprefix("a large ")](tmp_path)
