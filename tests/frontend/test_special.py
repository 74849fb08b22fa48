"""scipy.special in a traced function; scipy is not needed: its ufuncs are known by their names."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.frontend.numpy import scipy_functions
from graphc.frontend.numpy.trace import record
from graphc.support.errors import GraphcError
from graphc.testing.compute import evaluate

# What scipy 1.18 gives.
X = [-2.0, -0.5, 0.0, 0.25, 0.9, 3.0]
P = [0.05, 0.25, 0.5, 0.75, 0.95, 0.999]
A, B = [0.0, 0.5, 1.0, 2.0, 0.0, 3.0], [0.0, 2.0, 0.5, 3.0, 1.5, 0.2]
VALUES: dict[str, tuple[tuple[list[float], ...], list[float]]] = {
    "expit": ((X,), [0.11920292, 0.37754067, 0.5, 0.5621765, 0.7109495, 0.95257413]),
    "log_expit": (
        (X,), [-2.126928, -0.97407698, -0.69314718, -0.57593942, -0.34115387, -0.048587352]),
    "logit": ((P,), [-2.944439, -1.0986123, 0.0, 1.0986123, 2.944439, 6.9067548]),
    "erf": ((X,), [-0.99532227, -0.52049988, 0.0, 0.27632639, 0.79690821, 0.99997791]),
    "entr": ((X,), [-np.inf, -np.inf, 0.0, 0.34657359, 0.094824464, -3.2958369]),
    "exp10": ((X,), [0.01, 0.31622777, 1.0, 1.7782794, 7.9432823, 1000.0]),
    "xlogy": ((A, B), [0.0, 0.34657359, -0.69314718, 2.1972246, 0.0, -4.8283137]),
    "xlog1py": ((A, B), [0.0, 0.54930614, 0.40546511, 2.7725887, 0.0, 0.54696467]),
    "rel_entr": ((A, B), [0.0, -0.69314718, 0.69314718, -0.81093022, 0.0, 8.1241506]),
    "kl_div": ((A, B), [0.0, 0.80685282, 0.19314718, 0.18906978, 1.5, 5.3241506]),
}  # fmt: skip


class NamedUfunc:
    """A ufunc of another library, as a traced array sees it."""

    nin = 1

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *xs: Any) -> Any:
        return xs[0].__array_ufunc__(self, "__call__", *xs)


def test_ufuncs_of_scipy_have_its_values() -> None:
    assert VALUES.keys() == scipy_functions.UFUNCS.keys()

    def step(params: Any, batch: Any) -> Any:
        for name, (xs, _) in VALUES.items():
            graphc.report(name, NamedUfunc(name)(*(batch[f"{name}{i}"] for i in range(len(xs)))))
        return np.sum(params["w"])

    batch = {
        f"{name}{i}": np.array(x, np.float32)
        for name, (xs, _) in VALUES.items()
        for i, x in enumerate(xs)
    }
    w = {"w": np.ones(2, np.float32)}
    with graphc.compile(step, w, batch, optimizer=graphc.optim.sgd(0.1)) as trainer:
        made = trainer.step(batch)
    for name, (_, wanted) in VALUES.items():
        np.testing.assert_allclose(made[name], wanted, rtol=2e-5, atol=1e-6, err_msg=name)


def test_a_ufunc_without_an_op_says_what_to_do() -> None:
    for name, words in {"gammaln": "no op for it", "erfc": "1 - graphc.nn.erf"}.items():
        with pytest.raises(GraphcError, match=f"{name} can't be traced") as caught:
            record(lambda p, b, name=name: NamedUfunc(name)(b["x"]), {}, {"x": np.ones(3)})
        assert words in (caught.value.help or "")


@pytest.mark.parametrize(
    ("name", "of_graphc"),
    [
        ("softmax", lambda x: graphc.nn.softmax(x, axis=1)),
        ("log_softmax", lambda x: graphc.nn.log_softmax(x, axis=1)),
        ("logsumexp", lambda x: graphc.nn.logsumexp(x, axis=1)),
    ],
)
def test_functions_of_scipy_are_graphcs_while_a_function_is_traced(
    name: str, of_graphc: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = ModuleType("scipy.special")
    setattr(module, name, lambda x, axis=None: "scipy's own")
    monkeypatch.setitem(sys.modules, "scipy.special", module)
    x = {"x": np.ones((3, 2), np.float32)}

    def graph(function: Callable[[Any], Any]) -> Any:
        return record(lambda p, b: {"y": function(b["x"])}, {}, x).graph.fingerprint()

    assert graph(lambda x: getattr(module, name)(x, axis=1)) == graph(of_graphc)
    assert getattr(module, name)(1) == "scipy's own"


class Normal:
    """What matters of scipy.stats.norm here: an object with methods."""

    def pdf(self, x: Any, *args: Any, **options: Any) -> Any:
        return "scipy's own"

    logpdf = cdf = pdf


def test_the_normal_distribution_of_scipy_has_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("scipy.stats")
    module.norm = norm = Normal()
    monkeypatch.setitem(sys.modules, "scipy.stats", module)
    x = np.array([-1.5, 0.0, 2.0])
    found = {}

    def step(params: Any, batch: Any) -> Any:
        assert norm.pdf(1.0) == "scipy's own"
        a = batch["x"]
        found["of numbers"] = norm.pdf(0.5, loc=np.ones(3))
        return {
            "pdf": norm.pdf(a), "logpdf": norm.logpdf(a, 0.5, scale=2.0),
            "cdf": norm.cdf(a, loc=params["m"]), "by width": norm.logpdf(0.0, 0.0, np.exp(a)),
        }  # fmt: skip

    traced = record(step, {"m": np.float64(0.5)}, {"x": x})
    values = evaluate(traced.graph, {"x": x, **traced.values})
    got = {name: values[at] for name, at in traced.graph.outputs.items()}
    # What scipy 1.17 gives.
    np.testing.assert_allclose(
        got["pdf"], [0.12951759566589174, 0.3989422804014327, 0.05399096651318806]
    )
    np.testing.assert_allclose(
        got["logpdf"], [-2.112085713764618, -1.643335713764618, -1.893335713764618]
    )
    np.testing.assert_allclose(
        got["cdf"], [0.022750131948179195, 0.3085375387259869, 0.9331927987311419]
    )
    np.testing.assert_allclose(
        got["by width"], [0.5810614667953272, -0.9189385332046727, -2.9189385332046727]
    )
    assert found["of numbers"] == "scipy's own" and type(norm) is Normal
