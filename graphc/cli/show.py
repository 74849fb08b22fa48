"""Commands on graphs and sources as text: show, opt, fmt."""

from __future__ import annotations

import re
import sys
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from graphc.graph import Graph


@click.command("show")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--strategy", help="A strategy, such as 'mirrored(4)'. Default: the file's own.")
@click.option(
    "--after", default="partition", show_default=True, help="The pass to stop after, or 'source'."
)
@click.option(
    "--format", "form", default="ir", show_default=True, help="ir, dot, svg, mermaid or json."
)
@click.option(
    "--program", default="train", show_default=True, type=click.Choice(["train", "evaluate"])
)
@click.option("--diff", is_flag=True, help="Show what the pass changed, as a diff of IR text.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to a file.")
def show_command(
    file: Path,
    strategy: str | None,
    after: str,
    form: str,
    program: str,
    diff: bool,
    output: Path | None,
) -> None:
    """Print or draw the graph after a pass."""
    from graphc.inspect import FORMATS

    if form not in FORMATS:
        raise click.UsageError(f"there is no format '{form}'; known: {', '.join(FORMATS)}")
    before, graph = _stages(file, strategy, after, program)
    if diff:
        a, b = _unaligned(before), _unaligned(graph)
        text = "\n".join(unified_diff(a, b, "before", after, lineterm="", n=1))
    else:
        text = FORMATS[form](graph)
    _write(text, output)


def _unaligned(graph: Graph) -> list[str]:
    """The lines of a graph without what aligns their columns, which differs everywhere."""
    from graphc.text import print_ir

    return [re.sub(r"(?<=\S) +", " ", line) for line in print_ir(graph).splitlines()]


def _stages(file: Path, strategy: str | None, after: str, program: str) -> tuple[Graph, Graph]:
    """The graphs before and after the last run of a pass."""
    from graphc.driver import stages
    from graphc.frontend.lower import load_module
    from graphc.strategy import parse_strategy

    module = load_module(file)
    chosen = parse_strategy(strategy) if strategy else None
    found = list(stages(module, chosen, program))
    names = [name for name, _ in found]
    if after not in names:
        raise click.UsageError(f"no pass '{after}' ran; known: {', '.join(dict.fromkeys(names))}")
    at = len(names) - 1 - names[::-1].index(after)
    return found[max(at - 1, 0)][1], found[at][1]


@click.command("opt")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-p", "--passes", default="", help="Passes: cse,differentiate{order=tree},dce")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to a file.")
def opt_command(file: Path, passes: str, output: Path | None) -> None:
    """Run passes on a graph in text form (.gir) and print the result."""
    from graphc.passes import pipeline
    from graphc.passes.base import parse_passes
    from graphc.text import parse_ir, print_ir

    graph = parse_ir(_read(file), str(file))
    _write(print_ir(pipeline.run_passes(graph, parse_passes(passes))), output)


@click.command("fmt")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Change nothing; fail if a file is not formatted.")
def fmt_command(files: tuple[Path, ...], check: bool) -> None:
    """Format .gc files in place; `-` reads standard input and prints."""
    from graphc.frontend.format import format_source

    unformatted = []
    for file in files:
        if str(file) == "-":
            click.echo(format_source(sys.stdin.read()), nl=False)
            continue
        text = _read(file)
        formatted = format_source(text, str(file))
        if formatted != text:
            unformatted.append(file)
            if not check:
                write_atomically(file, formatted)
    for file in unformatted:
        click.echo(f"{'would format' if check else 'formatted'} {file}", err=True)
    if check and unformatted:
        raise click.exceptions.Exit(1)


def _read(file: Path) -> str:
    from graphc.errors import GraphcError

    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise GraphcError("G0106", f"cannot read {file}: {error}") from None


def write_atomically(file: Path, text: str) -> None:
    """Write so that a reader sees the old content or the new one, never a half."""
    import os

    temporary = file.with_name(file.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, file)


def _write(text: str, output: Path | None) -> None:
    text = text if text.endswith("\n") else text + "\n"
    if output is None:
        click.echo(text, nl=False)
    else:
        write_atomically(output, text)
        click.echo(f"wrote {output}", err=True)
