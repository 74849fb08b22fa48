"""The command `why`: the reason of a node, and what the alternatives would have cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from graphc.cli.run import (
    bucket_option,
    order_option,
    shown_warnings,
    sparse_option,
    strategy_option,
)

if TYPE_CHECKING:
    from graphc.inspect.explain.compiled import CompiledStep


@click.command("why")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("node", required=False)
@strategy_option
@order_option
@sparse_option
@bucket_option
@click.option(
    "--program", default="train", show_default=True,
    help="Program to look at: train, evaluate, predict, or another program of the strategy, such "
    "as sync, worker or server.0.",
)  # fmt: skip
@click.option(
    "--all", "everything", is_flag=True,
    help="List every inserted node, not only those that send something.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print explanations as JSON, a list.")
def why_command(
    file: Path, node: str | None, strategy: str | None, order: str | None, sparse: str | None,
    bucket: int, program: str, everything: bool, as_json: bool,
) -> None:  # fmt: skip
    """Say why NODE is in the compiled graph of FILE (.gc or .gir).

    For a node that a pass inserted: the pass and its rule, for which operand of which node, from
    which placement to which, the line of the source, the bytes that it sends, and what the
    alternatives would have cost. For any other node: what it computes, the gradient or the update
    of which variables, and which rule gave it its placement.

    NODE is a name (%h), a line of the source (digits.gc:12), an op (all_reduce), an output, or a
    pattern of names (%einsum*). Without NODE, the nodes that passes have inserted are listed.
    """
    from graphc.inspect.explain.answer import answer

    with shown_warnings():
        step = step_of(file, strategy, order, sparse, program, bucket)
    found = answer(step, node, everything, "graphc why FILE %NAME")
    click.echo(json.dumps(found.as_json(), indent=1) if as_json else str(found))


def step_of(
    file: Path, strategy: str | None, order: str | None, sparse: str | None,
    program: str = "train", bucket: int = 0,
) -> CompiledStep:  # fmt: skip
    """The stages of a program of FILE (.gc), or the graph that a .gir file holds."""
    from graphc.cli.file_arguments import read_text
    from graphc.frontend.language.load import load_module
    from graphc.inspect.explain.compiled import compiled_step, of_text
    from graphc.strategies import parse_strategy
    from graphc.verify.reading import read_ir

    if file.suffix == ".plan":
        help = "a plan has the programs only, not the graphs that they come from; give its .gc file"
        raise click.UsageError(help)
    if file.suffix == ".gir":
        return of_text(read_ir(read_text(file), str(file)))
    module = load_module(file).ordered(order or "").with_sparse(sparse or "")
    return compiled_step(module, parse_strategy(strategy) if strategy else None, program, bucket)
