"""Equality of frozen dataclasses."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

C = TypeVar("C", bound=type)


def equal_as_tuples(cls: C) -> C:
    """Compare records as tuples of their fields: two fields that are one object are equal, even a
    NaN.

    The `==` that `dataclass` makes does so up to Python 3.12; later it compares field by field.
    """
    names = tuple(field.name for field in fields(cls))

    def equal(self: Any, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        mine, others = ([getattr(x, name) for name in names] for x in (self, other))
        return mine == others

    cls.__eq__ = equal  # type: ignore[assignment]
    return cls
