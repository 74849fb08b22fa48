"""The command `fmt`: write .gc files in their canonical layout."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from graphc.support.files import write_whole


@click.command("fmt")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Write nothing; fail if a file is not formatted.")
def fmt_command(files: tuple[Path, ...], check: bool) -> None:
    """Format .gc files in place. `-` reads standard input and prints the result."""
    same = [_formatted(file, check) for file in files]
    if check and not all(same):
        raise click.exceptions.Exit(1)


def _formatted(file: Path, check: bool) -> bool:
    """Format one file, or with check say that it would be. True if it was already formatted."""
    from graphc.syntax.format import format_source
    from graphc.syntax.parse import read_file
    from graphc.syntax.source_text import MAX_BYTES

    piped = str(file) == "-"
    before = sys.stdin.buffer.read(MAX_BYTES + 1) if piped else read_file(file)
    after = format_source(before, "<stdin>" if piped else str(file))
    same = after.encode() == before
    if piped and not check:
        click.echo(after, nl=False)
    elif not same:
        if not check:
            write_whole(file, after)
        click.echo(f"{'would format' if check else 'formatted'} {file}", err=True)
    return same
