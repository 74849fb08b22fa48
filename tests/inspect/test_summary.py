"""Trainers, modules and graphs show themselves: as a table, a picture, a line."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.dom.minidom import parseString

import numpy as np
import pytest

import graphc
from graphc import notebook
from graphc.inspect.summary import MOST, summary

X = np.ones((16, 6), np.float32)


def loss(params: Any, batch: Any) -> Any:
    h = batch["x"]
    for layer in params["layers"]:
        h = np.tanh(h @ layer["w<1>"] + layer["b"])
    return np.mean(h**2)


def trainer(layers: int = 2, strategy: str = "mirrored(2)") -> graphc.StepTrainer:
    one = {"w<1>": np.eye(6, dtype=np.float32), "b": np.zeros(6, np.float32)}
    params = {"layers": [dict(one) for _ in range(layers)]}
    optimizer = graphc.optim.adam(graphc.hyper("lr", 0.1))
    return graphc.compile(loss, params, {"x": X}, optimizer=optimizer, strategy=strategy)


@pytest.mark.parametrize("strategy", ["one_device()", "zero(2, stage=3)", "parameter_server(2, 1)"])
def test_a_summary_counts_what_the_trainer_holds(strategy: str) -> None:
    with trainer(strategy=strategy) as one:
        found, params = one.summary(), one.variables("param")
        shown = {row.name: row for row in found.rows}
        assert {n: shown[n].shape for n in params} == {n: str(a.shape) for n, a in params.items()}
        assert {n: shown[n].numbers for n in params} == {n: a.size for n, a in params.items()}
        if strategy == "one_device()":
            assert {n: shown[n].bytes for n in params} == {n: a.nbytes for n, a in params.items()}
            slots = one.variables("slot").values()
            size = sum(a.nbytes for a in slots)
            assert f"{len(slots)} optimizer slots: 168 numbers, {size} bytes on a device" in str(
                found
            )
        lines = str(found).splitlines()
        assert lines[0].startswith(f"loss: {one.strategy} on ")
        assert "1 hyperparameter: 1 number, 8 bytes on a device" in lines


def test_many_variables_share_rows_by_layer() -> None:
    with trainer(layers=MOST - 1) as one:
        found = one.summary()
        assert len(found.rows) == MOST  # 39 layers, and the count of steps
        assert found.rows[0].cells == ("layers.0", "(6, 6), (6,)", "f32", "42", "168")
    with trainer(layers=MOST + 1) as one:
        assert [row.numbers for row in one.summary().rows] == [42 * (MOST + 1), 1]


def test_texts_are_short_and_markup_is_escaped() -> None:
    with trainer() as one:
        assert repr(one) == "<StepTrainer of loss: mirrored(2), 0 steps>"
        graph = one.graph()
        assert len(repr(graph)) < 200 and len(repr(one.module)) < 1000
        for text in (notebook.trainer_html(one), notebook.module_html(one.module)):
            parseString(f"<div>{text}</div>")  # well-formed: names are escaped
        assert "w&lt;1&gt;" in notebook.trainer_html(one) == summary(one.trainer.plan)._repr_html_()
        assert "<svg" in notebook.graph_html(graph)


def test_a_trainer_has_a_page_in_a_frame_of_its_own(tmp_path: Path) -> None:
    with trainer() as one:
        page = one.page()
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == page.html
    assert "html" not in repr(page).lower().replace("htmlpage", "")
    frame = parseString(page._repr_html_()).documentElement
    assert frame.getAttribute("srcdoc") and frame.getAttribute("sandbox") == "allow-scripts"


def test_a_large_graph_is_named_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "PICTURED", 10)
    with trainer() as one:
        text = notebook.graph_html(one.graph())
    assert "<svg" not in text and "graphc.print_ir" in text


def test_a_notebook_is_told_how_to_show_them(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[tuple[str, str], Any] = {}
    html = SimpleNamespace(for_type_by_name=lambda m, n, f: told.update({(m, n): f}))
    shell = SimpleNamespace(display_formatter=SimpleNamespace(formatters={"text/html": html}))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    notebook.register()
    with trainer() as one:
        for thing in (one, one.trainer, one.module, one.graph()):
            kind = type(thing)
            assert told[kind.__module__, kind.__name__](thing).startswith("<")
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))  # type: ignore[arg-type]
    notebook.register()  # IPython is imported, but does not run
