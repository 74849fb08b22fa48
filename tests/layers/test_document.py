"""spec/layers.md: its blocks run, and its table is what the layers say of themselves."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import transcripts

from graphc.docs.layers import layers_table

PAGE = Path(__file__).parents[2] / "spec" / "layers.md"
TABLE = re.compile(r"(?<=<!-- written by pytest --update -->\n)(.*?)(?=<!-- end -->)", re.DOTALL)


def test_the_blocks_of_the_document_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PAGE.parents[1])
    script = tmp_path / "steps.py"
    script.write_text("\n".join(b.text for b in transcripts.blocks(PAGE, "python")), "utf-8")
    made = runpy.run_path(str(script))
    assert made["scores"]["accuracy"] > 0.95
    assert made["trained"][0].w.shape == (64, 128)


def test_the_table_of_layers_is_not_stale(update: bool) -> None:
    text = PAGE.read_text(encoding="utf-8")
    if update:
        PAGE.write_text(TABLE.sub(lambda _: layers_table(), text), encoding="utf-8")
    else:
        assert TABLE.findall(text) == [layers_table()]
