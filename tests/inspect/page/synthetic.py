"""Pages of graphs that nobody compiled, of any size."""

from __future__ import annotations

from typing import Any

from graphc.inspect.page.data import FIELDS, KINDS, page_data
from graphc.inspect.page.history import history_of_graph
from graphc.ir.graph import Graph

INSIDE = 10  # nodes of a block


def synthetic(nodes: int, level: int) -> dict[str, Any]:
    """The data of a chain of blocks of ten nodes, half of them forward and half backward, each of
    which uses its forward block; blocks are open from `level` on."""
    data = page_data(history_of_graph(Graph("big")))
    strings = ["", "part", "forward", "backward", "scope", "einsum", "f32[256,256]", "x", "input"]
    number = {text: i for i, text in enumerate(strings)}
    records: list[list[Any]] = []
    groups = [
        [-1, number["part"], number["forward"], 0],
        [-1, number["part"], number["backward"], 0],
    ]

    def text(value: str) -> int:
        strings.append(value)
        return len(strings) - 1

    def node(operands: list[int], group: int, kind: str) -> int:
        given: dict[str, Any] = dict.fromkeys(FIELDS, 0)
        given |= {
            "name": text(f"n{len(records)}"), "op": number["einsum"], "operands": operands,
            "type": number["f32[256,256]"], "origin": -1, "because": -1,
            "kind": KINDS.index(kind), "group": group, "operations": 1000, "bytes": 4096,
        }  # fmt: skip
        records.append([given[name] for name in FIELDS])
        return int(given["name"])

    last = node([], 0, "input")
    blocks = nodes // INSIDE
    ends: list[int] = []
    for block in range(blocks):
        backward = block >= blocks // 2
        groups.append([int(backward), number["scope"], text(f"block.{block}"), level])
        for i in range(INSIDE):
            far = [ends[blocks - 1 - block]] if backward and i == 5 and block < blocks else []
            last = node([last, *far], len(groups) - 1, "compute")
        ends.append(last)
    return data | {
        "strings": strings, "records": records, "groups": groups,
        "stages": [data["stages"][0] | {"order": list(range(len(records)))}],
    }  # fmt: skip
