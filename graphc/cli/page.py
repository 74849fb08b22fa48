"""`graphc show --format html`: the page of a step, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click

from graphc.cli.file_arguments import read_text
from graphc.cli.run import shown_warnings
from graphc.support.files import write_whole


class PageView(NamedTuple):
    """What the page shows at first. after: the pass or stage of the lowering, '' for the last pass;
    level: how much of the graph, '' for what fits on a screen."""

    after: str
    level: str


def write_page(
    file: Path, strategy: str | None, order: str | None, sparse: str | None, view: PageView,
    program: str, output: Path | None,
) -> None:  # fmt: skip
    """Write the page of a .gc or .gir file, by default into the current folder, as FILE's
    name with .html."""
    from graphc.frontend.language.load import load_module
    from graphc.inspect.page import history_of_graph, record, stage_names, to_html
    from graphc.strategies import parse_strategy
    from graphc.verify.reading import read_ir

    match file.suffix:
        case ".plan":
            raise click.UsageError(
                "a plan has instructions, and no graph; give the .gc file that it was compiled from"
            )
        case ".gir":
            history = history_of_graph(read_ir(read_text(file), str(file)))
        case _:
            with shown_warnings():
                module = load_module(file).ordered(order or "").with_sparse(sparse or "")
                chosen = parse_strategy(strategy) if strategy else None
                history = record(module, chosen, program)
    if view.after and view.after not in (known := stage_names(history)):
        raise click.UsageError(f"no pass '{view.after}' ran; known: {', '.join(known)}")
    target = output or Path(f"{file.stem}.html")
    write_whole(target, to_html(history, view.after, view.level))
    click.echo(f"wrote {target}; open it in a browser", err=True)
