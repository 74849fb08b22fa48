"""How an ONNX node is written with graphc: a table from op types to functions of NumPy arrays.

Each function takes a `Call` (attributes, version, number of results) and the node's inputs, arrays
that are traced or plain; None stands for an input that is left out. It returns the result, or a
tuple of several. The judges are ONNX's own cases; nothing here is used outside of these tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


class NotOffered(Exception):
    """graphc has no way to say this node; the text is the reason."""


@dataclass(frozen=True)
class Call:
    """One node: its type, attributes, the version of ONNX's operators, and how many results."""

    type: str
    attributes: Mapping[str, Any]
    version: int
    results: int

    def __getitem__(self, name: str) -> Any:
        return self.attributes[name]

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or what it is without one."""
        return self.attributes.get(name, default)


@dataclass(frozen=True)
class Entry:
    """The function of an op type, and which of its inputs must be known at compile time."""

    run: Callable[..., Any]
    static: tuple[int, ...] = ()


TABLE: dict[str, Entry] = {}


def onnx(*types: str, static: tuple[int, ...] = ()) -> Callable[[Callable[..., Any]], Any]:
    """Enter a function for op types; static: the slots of inputs that are shapes, axes, counts."""

    def enter(run: Callable[..., Any]) -> Callable[..., Any]:
        for name in types:
            assert name not in TABLE, name
            TABLE[name] = Entry(run, static)
        return run

    return enter


def ints(x: Any) -> list[int]:
    """A static input as Python ints."""
    return [int(n) for n in x]
