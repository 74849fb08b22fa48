"""What a planted fault is, and the list that faults are put on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

Patch = pytest.MonkeyPatch
FAULTS: list[Fault] = []


@dataclass(frozen=True)
class Fault:
    """A fault: what is wrong, the law that notices, the edit, and steps that show it soon.

    late: it shows so late that it is planted with the longer laws only
    """

    name: str
    caught: str
    plant: Callable[[Patch], None]
    kinds: tuple[str, ...] = ()
    late: bool = False


def fault(
    caught: str, *kinds: str, late: bool = False
) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    """Add a planting function to the list; its docstring is the fault's name."""

    def add(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        FAULTS.append(Fault((plant.__doc__ or "").rstrip("."), caught, plant, kinds, late))
        return plant

    return add


def around(patch: Patch, owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Replace `owner.name` by `change(old, *args)`."""
    old = getattr(owner, name)
    patch.setattr(owner, name, lambda *args, **options: change(old, *args, **options))
