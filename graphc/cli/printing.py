"""What commands print: reports as JSON, and the compiler's warnings."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from graphc.cli.job import is_silent


def in_json(report: dict[str, Any]) -> str:
    """One line of JSON. A number that is not finite becomes null, as JSON can't express it."""

    def plain(value: Any) -> Any:
        match value:
            case dict():
                return {k: plain(x) for k, x in value.items()}
            case float() if not math.isfinite(value):
                return None
            case _:
                return value

    return json.dumps(plain(report), allow_nan=False)


@contextmanager
def shown_warnings() -> Iterator[None]:
    """Print the compiler's warnings in the same form as its errors."""
    from graphc.support.errors import GraphcWarning

    def show(message: Warning | str, *where: Any, **more: Any) -> None:
        if isinstance(message, GraphcWarning) and not is_silent():
            click.echo(str(message), err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", GraphcWarning)
        warnings.showwarning = show
        yield
