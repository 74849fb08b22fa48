"""A tiny model for the simulator: integers that show every lost, doubled or reordered update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

PRIME = 2**31 - 1


class Counter:
    """A store of one number, which every push changes in a way that does not commute."""

    def __init__(self, name: str) -> None:
        self.name, self.value = name, 1
        self.applied: list[int] = []

    def read(self) -> Mapping[str, Any]:
        return {self.name: self.value}

    def present(self) -> Mapping[str, Any]:
        return self.read()

    def apply(self, values: Mapping[str, Any]) -> None:
        self.applied.append(int(values["batch"]))
        self.value = (self.value * 31 + int(values["move"])) % PRIME

    def variables(self) -> Mapping[str, Any]:
        return {self.name: self.value, "applied": tuple(self.applied)}

    def load(self, values: Mapping[str, Any]) -> None:
        """Of a server that was killed, nothing is left."""
        self.value = int(values.get(self.name, -1))
        self.applied = [int(batch) for batch in values.get("applied", ())]


def counters(servers: int) -> list[Counter]:
    return [Counter(f"v{i}") for i in range(servers)]


def compute(
    batch: int, values: Mapping[str, Any]
) -> tuple[Sequence[Mapping[str, Any]], Mapping[str, Any]]:
    """A part for each server, made from the values of all of them."""
    total = sum(values.values()) + 7 * batch
    parts = [{"batch": batch, "move": total * (i + 1) % PRIME} for i in range(len(values))]
    return parts, {"loss": float(total)}
