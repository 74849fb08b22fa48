"""`graphc export FILE.gc -o model.onnx`: what it writes, prints and refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from export.onnx_runs import run_reference
from safetensors.numpy import save_file

from graphc.cli import group
from graphc.support.errors import GraphcError

PROGRAM = """\
step line(x: f32[batch, 3], y: f32[batch]) {
    param w: f32[3] = normal(0.5)
    found = x @ w
    minimize mean(square(found - y)) with sgd(0.1)
    report found = found
    report far   = abs(found - y)
}

data train = npz("train.npz", batch=8)
"""
W = np.array([1, -2, 3], np.float32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "line.gc").write_text(PROGRAM)
    save_file({"w": W}, tmp_path / "w.safetensors")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*words: str) -> Result:
    return CliRunner().invoke(group, ["export", *words])


@pytest.mark.parametrize("file", ["line.gc", "line.plan"])
def test_a_program_is_written_with_its_weights(folder: Path, file: str) -> None:
    if file == "line.plan":
        assert CliRunner().invoke(group, ["compile", "line.gc"]).exit_code == 0
    result = call(file, "--load", "w.safetensors", "--report", "found", "-o", "m.onnx")
    assert (result.exit_code, result.output) == (
        0,
        "wrote m.onnx: x f32[batch,3] -> found f32[batch]\n",
    )
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    found = run_reference(onnx.load("m.onnx"), {"x": x})
    assert found.keys() == {"found"}
    np.testing.assert_allclose(found["found"], x @ W, rtol=1e-5)


def test_without_weights_a_note_says_that_they_are_initial_values(folder: Path) -> None:
    result = call("line.gc", "-o", "m.onnx")
    assert result.stderr == "note: the weights are initial values: give --resume or --load\n"
    names = [x.name for x in onnx.load("m.onnx").graph.output]
    assert names == ["found", "far"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("line.gc", "-o", "m.safetensors"), "a .gc file or a plan is written as .onnx"),
        (("w.safetensors", "-o", "m.onnx"), "a checkpoint as .safetensors"),
        (("line.gc", "--names", "n.json", "-o", "m.onnx"), "--names is for the weights"),
        (("w.safetensors", "--load-names", "n", "-o", "v.safetensors"), "--load-names is for a model"),
        (("w.safetensors", "--report", "a", "-o", "v.safetensors"), "--report is for a model"),
        (("line.gc", "--load", "a", "--resume", "b", "-o", "m.onnx"), "give --resume or --load"),
    ],
)  # fmt: skip
def test_options_that_say_nothing_are_refused(folder: Path, words: Any, says: str) -> None:
    result = call(*words)
    assert result.exit_code == 2 and says in " ".join(result.stderr.split())


def test_errors_have_codes_and_nothing_is_written(folder: Path) -> None:
    for words, code in (
        (("line.gc", "--report", "fond", "-o", "m.onnx"), "G0624"),
        (("line.gc", "--load", "none.safetensors", "-o", "m.onnx"), "G0509"),
        (("line.gc", "-o", "none/m.onnx"), "G0512"),
    ):
        error = call(*words).exception
        assert isinstance(error, GraphcError) and error.code == code
    assert not (folder / "m.onnx").exists()


def test_numbers_are_not_exported_of_a_plan(folder: Path) -> None:
    CliRunner().invoke(group, ["compile", "line.gc", "-o", "line.plan"])
    error = call("line.plan", "--report", "loss", "-o", "m.onnx").exception
    assert isinstance(error, GraphcError) and error.code == "G0624"
    assert error.message == "a plan predicts arrays, and 'loss' is a number"
    error = call("line.plan", "--report", "fond", "-o", "m.onnx").exception
    assert isinstance(error, GraphcError) and error.help == "did you mean 'found'?"
