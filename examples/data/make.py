"""Makes the data of the examples from their sources: python examples/data/make.py RAW

RAW is a folder with digits.csv.gz, breast_cancer.csv and wine_data.csv, as scikit-learn ships them
in `sklearn/datasets/data`, and with sunspots.csv, as statsmodels ships it in
`statsmodels/datasets/sunspots`. The text comes from the Python that runs this. Nothing is
downloaded.
README.md says what each file holds.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).parent
Arrays = dict[str, NDArray[Any]]

PAGES = (
    "specialnames", "compound", "types", "formatstrings", "string-methods", "typesseq",
    "debugger", "typesmapping", "assignment", "comparisons", "execmodel", "import",
)  # fmt: skip
WINE = (
    "alcohol", "malic_acid", "ash", "alcalinity_of_ash", "magnesium", "phenols", "flavanoids",
    "nonflavanoid_phenols", "proanthocyanins", "color_intensity", "hue", "od280_od315", "proline",
    "cultivar",
)  # fmt: skip
VOCABULARY, WORDS = 1200, 24  # ids 0 (no word) and 1 (a rare word) included


def main(raw: Path) -> None:
    """Write every data set of the examples beside this file."""
    save_npz("digits", digits(raw / "digits.csv.gz"), train=1500)
    save_csv("cells", cells(raw / "breast_cancer.csv"), train=400)
    save_npz("pages", pages(), train=1900)
    save_table("wine", WINE, np.loadtxt(raw / "wine_data.csv", delimiter=",", skiprows=1))
    spots = np.loadtxt(raw / "sunspots.csv", delimiter=",", skiprows=1)
    save_table("sunspots", ["year", "spots"], spots)


def digits(file: Path) -> Arrays:
    """x: the 64 pixels from 0 to 1; y: the digit."""
    table = np.loadtxt(file, delimiter=",")
    return {"x": (table[:, :64] / 16).astype(np.float32), "y": table[:, 64].astype(np.int32)}


def cells(file: Path) -> Arrays:
    """x: the ten mean measurements of a sample's cell nuclei; y: its worst concave points."""
    table = np.loadtxt(file, delimiter=",", skiprows=1)
    return {"x": table[:, :10], "y": table[:, 27]}


def pages() -> Arrays:
    """words: the ids of a sentence's words, 0 behind its end; y: the page that it stands on."""
    from pydoc_data.topics import topics

    found: dict[tuple[str, ...], int] = {}
    for y, page in enumerate(PAGES):
        for sentence in re.split(r"\n\s*\n|[.:;]\s", topics[page]):
            words = tuple(re.findall(r"[a-z_]{2,}", sentence.lower()))[:WORDS]
            if len(words) >= 5:
                found.setdefault(words, y)
    counts = Counter(word for words in found for word in words)
    common = sorted(counts, key=lambda word: (-counts[word], word))[: VOCABULARY - 2]
    ids = {word: i for i, word in enumerate(common, start=2)}
    table = np.zeros((len(found), WORDS), np.uint16)
    for row, words in zip(table, found, strict=True):
        row[: len(words)] = [ids.get(word, 1) for word in words]
    return {"words": table, "y": np.array(list(found.values()), np.uint8)}


# -- the split -------------------------------------------------------------------------------------


def split(data: Arrays, train: int) -> dict[str, Arrays]:
    """The first `train` examples of a fixed random order, and the rest."""
    order = np.random.default_rng(0).permutation(len(data["y"]))
    parts = {"train": order[:train], "test": order[train:]}
    return {name: {k: a[rows] for k, a in data.items()} for name, rows in parts.items()}


def save_npz(name: str, data: Arrays, train: int) -> None:
    """Write NAME-train.npz and NAME-test.npz."""
    for part, arrays in split(data, train).items():
        np.savez_compressed(HERE / f"{name}-{part}.npz", **arrays)  # type: ignore[arg-type]


def save_csv(name: str, data: Arrays, train: int) -> None:
    """Write NAME-train.csv and NAME-test.csv, every column scaled to the training part."""
    parts = split(data, train)
    table = {part: np.column_stack([a["x"], a["y"]]) for part, a in parts.items()}
    mean, deviation = table["train"].mean(axis=0), table["train"].std(axis=0)
    header = ",".join([*(f"x.{i}" for i in range(data["x"].shape[1])), "y"])
    for part, rows in table.items():
        scaled = (rows - mean) / deviation
        np.savetxt(HERE / f"{name}-{part}.csv", scaled, "%.5f", ",", header=header, comments="")


def save_table(name: str, columns: Sequence[str], rows: NDArray[Any]) -> None:
    """Write NAME.csv: the numbers as they are, in their order."""
    np.savetxt(HERE / f"{name}.csv", rows, "%g", ",", header=",".join(columns), comments="")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
