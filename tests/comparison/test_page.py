"""The page about comparisons shows what is printed, but for what is measured."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import transcripts

import graphc

PAGE = Path(__file__).parents[2] / "spec" / "comparing.md"


def unmeasured(text: str) -> list[list[str]]:
    """The words of each line, without times, sizes, and numbers of asynchronous runs."""
    text = re.sub(
        r"[\d.]+ (s|ms|µs|ns|B|KiB|MiB)(?=\W|$)|\d[\d.]*e-\d+", "MEASURED", text, flags=re.MULTILINE
    )
    text = re.sub(r"staleness 0: .*(?= \()", "staleness ...", text)
    text = re.sub(r"\b\d+\.\d{4}\b", "LOSS", text)
    return [line.split() for line in text.strip().splitlines()]


@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.ci)])
def test_what_the_page_shows_is_printed(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transcripts.workplace(tmp_path, monkeypatch)
    ((command, shown),) = transcripts.commands(transcripts.blocks(PAGE, "text")[number])
    printed = unmeasured(transcripts.printed(command))
    last = next(k for k, line in enumerate(printed) if line[:1] == ["take"])
    assert printed[:last] == unmeasured(shown)[:last]
    if number == 0:  # only one candidate can be taken
        assert printed == unmeasured(shown)


def test_a_traced_step_is_compared_as_the_page_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = transcripts.blocks(PAGE, "python")
    (tmp_path / "compare.py").write_text(block.text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    made = runpy.run_path("compare.py")
    found = made["found"]
    assert found.take in ("one_device()", "mirrored(2)")
    assert capsys.readouterr().out == f"{found}\n" == f"{found!r}\n"
    assert [c["loss"] for c in found.record()["candidates"]] == [
        pytest.approx(found.measured[0].losses[-1], rel=1e-4)
    ] * 2
    assert (tmp_path / "comparison.svg").read_text() == found.svg() in found._repr_html_()
    with pytest.raises(graphc.GraphcError, match="G0819"):
        graphc.compare(made["loss_fn"], made["params"], made["batches"])
    with pytest.raises(graphc.GraphcError, match="G0606"):
        graphc.compare(made["loss_fn"], made["params"], [], optimizer=graphc.optim.sgd(0.1))
