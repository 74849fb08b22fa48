"""check: distributed equals single."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from graphc.strategy import Strategy


@click.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--devices", default="1,2,4", show_default=True, help="Device counts, such as 1,2,3,4."
)
@click.option("--accumulate", default="1", show_default=True, help="Microbatches per update.")
@click.option(
    "--strategy", "templates", multiple=True, default=("mirrored({n})",), show_default=True,
    help="What to run on n devices; may be given several times.",
)  # fmt: skip
@click.option("--steps", default=20, show_default=True, type=click.IntRange(1))
@click.option("--backend", default="numpy", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def check_command(
    file: Path, devices: str, accumulate: str, templates: tuple[str, ...], steps: int,
    backend: str, as_json: bool,
) -> None:  # fmt: skip
    """Check that the distributed program equals the single device, within stated rounding."""
    from graphc.check import check_strategies
    from graphc.cli.run import shown_warnings
    from graphc.errors import GraphcError
    from graphc.frontend.lower import load_module
    from graphc.runtime.data import load

    with shown_warnings():
        module = load_module(file)
        spec = module.data.get("train")
        if spec is None:
            raise GraphcError("G0607", "the program names no data to check with")
        types = {name: node.tensor for name, node in module.train.inputs.items()}
        data = load(spec.kind, spec.path, types, spec.origin)
        chosen = _strategies(templates, _numbers(devices), _numbers(accumulate))
        rows = check_strategies(module, chosen, data, spec.batch, steps, backend, spec.shuffle_seed)
        good = True
        for row in rows:
            good = good and row.equal
            mark = "ok  " if row.equal else "FAIL"
            click.echo(
                json.dumps(asdict(row) | {"equal": row.equal})
                if as_json
                else f"{mark} {row.strategy:36} {row.devices:3} devices  loss {row.loss:.6f}  "
                f"differs by {row.difference:.1e} (allowed {row.allowed:.1e})"
            )
    if not good:
        raise click.exceptions.Exit(1)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise click.BadParameter(f"'{text}' is no list of numbers, such as 1,2,4") from None


def _strategies(templates: tuple[str, ...], devices: list[int], turns: list[int]) -> list[Strategy]:
    from graphc.strategy import Accumulate, parse_strategy

    found = []
    for template in templates:
        for n in devices:
            for k in turns:
                strategy = parse_strategy(template.replace("{n}", str(n)))
                found.append(strategy * Accumulate(k) if k > 1 else strategy)
    return list(dict.fromkeys(found))
