"""Each layer is PyTorch's module of that name, and the same under every strategy."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from laws.programs.strategies import STRATEGIES as LISTED
from layers.torch_cases import CASES, called
from shares import dealt, every

import graphc
from graphc import layers as L
from graphc import nn
from graphc.frontend.numpy.pytree import flatten
from graphc.support.errors import GraphcError

RECORDED = Path(__file__).with_name("torch.npz")
STATES = ("mean", "var")  # of a batch norm: PyTorch's variance is the unbiased one


@cache
def recorded() -> dict[str, np.ndarray]:
    with np.load(RECORDED) as data:
        return dict(data)


def of_torch(name: str) -> dict[str, np.ndarray]:
    return {k.partition("/")[2]: v for k, v in recorded().items() if k.startswith(f"{name}/")}


def with_arrays(layer: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The layer with these weights by path; states stay as they are."""
    leaves, form = flatten(layer, "layer")
    return form.build({name: arrays.get(name, x) for name, x in leaves.items()})


def test_each_layer_is_that_of_torch() -> None:
    """All of them in one step: the results, and the gradients, which are what sgd subtracts."""

    def step(params: Any, batch: Any) -> Any:
        total = 0.0
        for name, p in params.items():
            y = called(name, p["layer"], p["x"])
            graphc.report(name, y)
            total += np.sum(y * np.linspace(1, 2, y.size, dtype=np.float32).reshape(y.shape))
        return total

    want = {name: of_torch(name) for name in CASES}
    params = {
        name: {"layer": with_arrays(make(), want[name]), "x": want[name]["x"]}
        for name, (make, _) in CASES.items()
    }
    batch = {"unused": np.zeros(1, np.float32)}
    with graphc.compile(step, params, batch, optimizer=graphc.optim.sgd(1.0)) as trainer:
        before, results = trainer.variables("param"), trainer.step(batch)
        after = trainer.variables("param")
    for name in CASES:
        np.testing.assert_allclose(results[name], want[name]["y"], rtol=1e-5, atol=1e-5)
    for key, value in before.items():
        name, _, path = key.partition(".")
        gradient = want[name][f"{path.removeprefix('layer.')}.gradient"]
        limit = 2e-6 * np.abs(gradient).max() + 1e-5
        np.testing.assert_allclose(value - after[key], gradient, rtol=2e-5, atol=limit, err_msg=key)


def test_every_case_is_recorded() -> None:
    assert {key.partition("/")[0] for key in recorded()} == set(CASES)


# -- strategies ------------------------------------------------------------------------------------

ALONE = {"parameter_server", "local_sgd", "diloco"}  # replicas that go their own way
STRATEGIES = [s.replace(", {map}", "") for s in LISTED if not ALONE.intersection(s.split("("))]
MORE: dict[str, tuple[Any, Any]] = {
    "sequential": (
        lambda: L.Sequential(L.Dense(4, 8), L.BatchNorm(8), nn.gelu, L.Dropout(0.2), L.Dense(8, 3)),
        (4,),
    ),
    "rotary": (
        lambda: L.MultiHeadAttention(8, 4, kv_heads=2, rotary=True, dropout=0.1, bias=False),
        (5, 8),
    ),
    "upsampled": (lambda: L.Sequential(L.Upsample(2, "linear"), L.Conv1d(3, 2, 3)), (4, 3)),
    "pooled": (lambda: L.Sequential(L.Conv2d(2, 4, 3), L.GlobalMaxPool()), (4, 4, 2)),
    "averaged": (lambda: L.Sequential(L.Conv1d(2, 4, 3), L.GlobalAvgPool(), L.Flatten()), (4, 2)),
}
ALL = {name: (make, shape[1:]) for name, (make, shape) in CASES.items()} | MORE


def trained(name: str, strategy: str) -> tuple[list[float], dict[str, np.ndarray]]:
    """The losses of two steps, of 8 examples and of 5, and the variables after them."""
    make, shape = ALL[name]
    rng = np.random.default_rng(1)
    data = [{"x": rng.normal(size=(n, *shape)).astype(np.float32)} for n in (8, 5)]

    def step(model: Any, batch: Any) -> Any:
        y = called(name, model, batch["x"])
        return np.mean(np.square(y - 0.5)) + 0.01 * np.mean(y)

    model = {"in": L.Dense(shape[-1], shape[-1]), "layer": make()}

    def whole(p: Any, batch: Any) -> Any:
        return step(p["layer"], {"x": p["in"](batch["x"])})

    with graphc.compile(
        whole, model, data[0], optimizer=graphc.optim.adamw(1e-2, eps=1e-4), strategy=strategy
    ) as trainer:
        losses = [float(trainer.step(batch)["loss"]) for batch in data]
        return losses, trainer.variables()


expected = cache(lambda name: trained(name, "one_device()"))


# Each layer under four strategies, two of them in CI; all of the list are among them.
PAIRS = [
    [
        (name, STRATEGIES[(i + 9 * turn) % len(STRATEGIES)])
        for turn in range(4)
        for i, name in enumerate(ALL)
        if (i + turn) % 2 == half
    ]
    for half in range(2)
]


@pytest.mark.one_in(1, ci=4)
@pytest.mark.parametrize(
    "pair", [*every(49, PAIRS[0]), *dealt(PAIRS[1], 0, 0)], ids=str
)  # fmt: skip
def test_a_layer_is_the_same_under_every_strategy(pair: tuple[str, str]) -> None:
    name, strategy = pair
    losses, variables = trained(name, strategy)
    want, whole = expected(name)
    np.testing.assert_allclose(losses, want, rtol=2e-5)
    for key, value in whole.items():
        np.testing.assert_allclose(variables[key], value, rtol=1e-3, atol=2e-4, err_msg=key)


def test_a_mask_of_present_keys_is_not_taken_for_one_of_queries_and_keys() -> None:
    layer = L.MultiHeadAttention(4, 2)
    batch = {"x": np.ones((5, 5, 4), np.float32), "present": np.ones((5, 5), bool)}
    square = np.tril(np.ones((5, 5), bool))
    with pytest.raises(
        GraphcError, match=r"the mask of shape \(5, 5\) has a row for each example"
    ) as error:
        graphc.compile(lambda m, b: m(b["x"], mask=b["present"]), layer, batch)
    assert error.value.code == "G0206" and "mask[:, None]" in str(error.value.help)
    for given in (lambda b: b["present"][:, None], lambda _: square):
        with graphc.compile(lambda m, b, g=given: m(b["x"], mask=g(b)), layer, batch) as model:
            assert model.predict([batch]).shape == (5, 5, 4)
