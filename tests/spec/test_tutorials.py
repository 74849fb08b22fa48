"""The tutorials and the FAQ: their blocks run and print what the pages say, to the last digit."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import transcripts

FOLDER = Path(__file__).parents[2] / "spec" / "tutorials"
PAGES = sorted(page.stem for page in FOLDER.glob("*.md") if page.stem != "index")
ALWAYS = ("digits", "measurements", "adversaries", "images")
MANUAL = "characters"  # its text is the manual of the Python that runs it


@pytest.mark.parametrize(
    "name", [p if p in ALWAYS else pytest.param(p, marks=pytest.mark.ci) for p in PAGES]
)
def test_a_tutorial_prints_what_it_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update: bool
) -> None:
    if name == MANUAL and sys.version_info[:3] != (3, 11, 7):
        pytest.skip("the manual is that of CPython 3.11.7")
    transcripts.workplace(tmp_path, monkeypatch)
    assert transcripts.play(FOLDER / f"{name}.md", tmp_path, update) >= 3
    transcripts.check(FOLDER / f"{name}.md", update)


def test_the_list_of_tutorials_is_whole() -> None:
    text = (FOLDER / "index.md").read_text(encoding="utf-8")
    assert all(text.count(f"]({name}.md)") == 1 for name in PAGES)
    assert len(PAGES) >= 10


def test_tutorials_are_short() -> None:
    for name in PAGES:
        assert len((FOLDER / f"{name}.md").read_text(encoding="utf-8").splitlines()) < 180, name


def test_the_answers_to_questions_print_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update: bool
) -> None:
    page = FOLDER.parent / "faq.md"
    transcripts.workplace(tmp_path, monkeypatch)
    assert transcripts.play(page, tmp_path, update) >= 5
    assert transcripts.check(page, update) == 2
