"""The README does what it says: its commands run, its blocks are what graphc prints, its figures
are those of the tests."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import baselines
import pytest
import transcripts
from click.testing import CliRunner

from graphc.cli import COMMANDS, group

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transcripts.workplace(tmp_path, monkeypatch)


def shell() -> list[str]:
    return [block.text.strip() for block in transcripts.blocks(README, "sh")]


def test_readme_shows_what_graphc_prints(update: bool) -> None:
    assert transcripts.check(README, update) >= 4


def test_first_command_installs_and_trains_the_digits() -> None:
    install, _, train = shell()[0].partition(" && ")
    assert install == "pip install ."
    assert "test: " in transcripts.printed(train)


def test_second_command_is_the_one_that_ci_runs() -> None:
    install, _, tests = shell()[1].partition(" && ")
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert install == "pip install '.[test]'"
    assert install in script and tests in script


def test_the_language_block_is_the_example(update: bool) -> None:
    (block,) = transcripts.blocks(README, "gc")
    source = (ROOT / "examples" / "digits.gc").read_text(encoding="utf-8")
    if update:
        text = README.read_text(encoding="utf-8")
        README.write_text(text.replace(f"```gc\n{block.text}", f"```gc\n{source}"), "utf-8")
    else:
        assert block.text == source


def test_the_python_block_trains(tmp_path: Path) -> None:
    (block,) = transcripts.blocks(README, "python")
    script = tmp_path / "snippet.py"
    script.write_text(block.text, encoding="utf-8")
    made = runpy.run_path(str(script))
    assert made["metrics"]["accuracy"] > 0.9
    assert made["trained"]["w1"].shape == (64, 128)


def test_the_picture_is_fresh(update: bool) -> None:
    given = ["show", "examples/digits.gc", "--strategy", "mirrored(4)", "--level", "model"]
    drawn = CliRunner().invoke(group, [*given, "--format", "svg"]).stdout
    picture = ROOT / "spec" / "digits.svg"
    if update:
        picture.write_text(drawn, encoding="utf-8")
    assert picture.read_text(encoding="utf-8") == drawn


def test_the_table_of_commands_is_whole() -> None:
    rows = re.findall(r"^\| `graphc (\w+)", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == list(COMMANDS)


def test_every_example_is_in_the_table() -> None:
    rows = set(re.findall(r"^\| `(\w+\.\w+)` \|", README.read_text(encoding="utf-8"), re.MULTILINE))
    files = {f.name for f in (ROOT / "examples").iterdir() if f.suffix in (".gc", ".py")}
    assert rows == files


def test_figures_to_beat_are_the_computed_ones() -> None:
    text = README.read_text(encoding="utf-8")
    for stated in (
        f"linear model {baselines.linear_digits():.1%}",
        f"principal components {baselines.principal_components():.4f}",
        f"linear on them {baselines.linear_on_components():.1%}",
        f"least squares {baselines.linear_cells():.3f}",
        f"variance {baselines.variance_of_cells():.2f}",
        f"most frequent page {baselines.most_frequent_page():.1%}",
    ):
        assert stated.replace("%", " %") in text


def test_every_link_leads_somewhere() -> None:
    documents = [README, ROOT / "CONTRIBUTING.md", *(ROOT / "spec").rglob("*.md")]
    for file in documents:
        prose = transcripts.FENCE.sub("", file.read_text(encoding="utf-8"))
        links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose)
        missing = [link for link in links if not (file.parent / link).exists()]
        assert not missing, f"{file.name}: {missing}"


def test_every_extra_is_in_the_table() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    shown = re.findall(
        r"^\| `(\w+)` \| [^|]+ \| [^|]*\|$", README.read_text(encoding="utf-8"), re.M
    )
    assert sorted(shown) == shown == sorted(project["optional-dependencies"])
