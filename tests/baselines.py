"""What the examples have to beat, computed from the same data: simple models in closed form."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

DATA = Path(__file__).parents[1] / "examples" / "data"
CODE = 8  # the numbers that stand for a digit in autoencoder.gc

Array = NDArray[Any]


@cache
def arrays(name: str, part: str) -> dict[str, Array]:
    """The arrays of a data set; of a CSV file the last column is y."""
    file = DATA / f"{name}-{part}.npz"
    if file.exists():
        with np.load(file) as opened:
            return dict(opened)
    table = np.loadtxt(DATA / f"{name}-{part}.csv", delimiter=",", skiprows=1)
    return {"x": table[:, :-1], "y": table[:, -1]}


def with_one(x: Array) -> Array:
    return np.column_stack([x, np.ones(len(x))])


def fitted(x: Array, y: Array, held_out: Array) -> Array:
    """What least squares predicts."""
    weights = np.linalg.lstsq(with_one(x), y, rcond=None)[0]
    predicted: Array = with_one(held_out) @ weights
    return predicted


# -- digits ----------------------------------------------------------------------------------------


def linear_digits() -> float:
    """Accuracy of least squares on one-hot digits."""
    train, test = arrays("digits", "train"), arrays("digits", "test")
    predicted = fitted(train["x"], np.eye(10)[train["y"]], test["x"]).argmax(axis=1)
    return float(np.mean(predicted == test["y"]))


def components(part: str) -> tuple[Array, Array]:
    """(coordinates along the training part's first principal components, the digits from them)."""
    train = arrays("digits", "train")["x"].astype(np.float64)
    mean = train.mean(axis=0)
    basis = np.linalg.svd(train - mean, full_matrices=False)[2][:CODE]
    z = (arrays("digits", part)["x"] - mean) @ basis.T
    return z, z @ basis + mean


def principal_components() -> float:
    """Mean squared error of the best linear code of as many numbers."""
    return float(np.mean((components("test")[1] - arrays("digits", "test")["x"]) ** 2))


def linear_on_components() -> float:
    """Accuracy of least squares on that code."""
    train, test = arrays("digits", "train"), arrays("digits", "test")
    z, held_out = components("train")[0], components("test")[0]
    predicted = fitted(z, np.eye(10)[train["y"]], held_out).argmax(axis=1)
    return float(np.mean(predicted == test["y"]))


# -- cells, pages ----------------------------------------------------------------------------------


def linear_cells() -> float:
    """Mean squared error of least squares."""
    train, test = arrays("cells", "train"), arrays("cells", "test")
    return float(np.mean((fitted(train["x"], train["y"], test["x"]) - test["y"]) ** 2))


def variance_of_cells() -> float:
    """Mean squared error of the training part's mean."""
    return float(
        np.mean((arrays("cells", "test")["y"] - arrays("cells", "train")["y"].mean()) ** 2)
    )


def most_frequent_page() -> float:
    """Accuracy of always saying the most frequent page."""
    train, test = arrays("pages", "train")["y"], arrays("pages", "test")["y"]
    return float(np.mean(test == np.bincount(train).argmax()))
