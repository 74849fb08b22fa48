"""Commands that list what there is; the same text as in spec/, from the same registries."""

from __future__ import annotations

import click


@click.command("ops")
@click.argument("name", required=False)
def ops_command(name: str | None) -> None:
    """List the operations, or describe one: graphc ops einsum."""
    import inspect

    from graphc.op import all_ops, op_named
    from graphc.ops import COMPOSITES

    if name is None:
        _table((n, _first_line(op)) for n, op in all_ops().items())
        click.echo("\ncomposites, written over these:\n")
        _table((n, _first_line(f)) for n, f in sorted(COMPOSITES.items()))
    elif name in COMPOSITES:
        click.echo(f"{name}{inspect.signature(COMPOSITES[name])}\n")
        click.echo(inspect.getdoc(COMPOSITES[name]) or "")
    else:
        click.echo(f"{name}\n\n{inspect.getdoc(op_named(name)) or ''}")


@click.command("passes")
def passes_command() -> None:
    """List the passes, in the order of the pipeline."""
    from graphc.passes.base import PASSES
    from graphc.passes.pipeline import differentiation, distribution, partitioning
    from graphc.strategy import OneDevice

    one = OneDevice()
    order = [*differentiation(), *distribution(one), *partitioning(one)]
    names = dict.fromkeys([p.name for p in order] + list(PASSES))
    _table(
        (n + (" (optional)" if PASSES[n].optional else ""), _first_line(PASSES[n])) for n in names
    )


@click.command("strategies")
def strategies_command() -> None:
    """List the strategies. They combine with `*`."""
    from dataclasses import fields

    from graphc.strategy import STRATEGIES

    for name, cls in STRATEGIES.items():
        options = ", ".join(f"{f.name}={f.default!r}" for f in fields(cls))  # type: ignore[arg-type]
        _table([(f"{name}({options})", _first_line(cls))])
    click.echo("\ncombine them: mirrored(4) * accumulate(2)")


@click.command("backends")
def backends_command() -> None:
    """List the backends and transports, and say why one can't run."""
    from graphc.runtime.plugins import backends, transports

    for title, found in (("backends", backends()), ("transports", transports())):
        click.echo(f"{title}:")
        _table((p.name, f"{p.distribution}: {p.reason or 'ready'}") for p in found)


@click.command("explain")
@click.argument("code", required=False)
def explain_command(code: str | None) -> None:
    """Explain an error code, such as G0203; without one, list them all."""
    from graphc.error_codes import CODES
    from graphc.errors import did_you_mean

    if code is None:
        _table((c, entry.title) for c, entry in CODES.items())
        return
    known = code.upper()
    if known not in CODES:
        hint = did_you_mean(known, tuple(CODES)) or "`graphc explain` lists all codes"
        raise click.UsageError(f"there is no error code {code}; {hint}")
    click.echo(f"{known}: {CODES[known].title}\n\n{CODES[known].text}")


def _first_line(thing: object) -> str:
    return (thing.__doc__ or "").strip().splitlines()[0] if thing.__doc__ else ""


def _table(rows: object) -> None:
    """Print (name, text) rows in two columns."""
    pairs = list(rows)  # type: ignore[call-overload]
    width = min(32, max((len(a) for a, _ in pairs), default=0))
    for name, text in pairs:
        click.echo(f"  {name:<{width}}  {text}")
