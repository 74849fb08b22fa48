"""Sums of products of bools are bools: whether there is a product that is true."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import numpy as np

from graphc.frontend.numpy.handlers import Handler
from graphc.ir.builder import Builder, Value


def of_truths(operands: int | None = None) -> Callable[[Handler], Handler]:
    """A handler whose result is of bools where all of its first `operands` arguments are.

    graphc adds up bools as i32; NumPy's `mask @ mask` has no counts in it.
    """

    def wrapped(handler: Handler) -> Handler:
        @wraps(handler)
        def call(f: Builder, *args: Any, **options: Any) -> Any:
            result = handler(f, *args, **options)
            kinds = {*_kinds(args[:operands])}
            return f.ne(result, 0) if kinds == {"b"} and result.dtype.kind != "b" else result

        return call

    return wrapped


def _kinds(operands: Any) -> Iterator[str]:
    for x in operands:
        match x:
            case list() | tuple():
                yield from _kinds(x)
            case Value() | np.ndarray() | np.generic():
                yield x.dtype.kind
            case bool():
                yield "b"
            case str():  # the subscripts of einsum
                pass
            case _:
                yield "f"
