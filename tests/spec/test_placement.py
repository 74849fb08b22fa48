"""The table of conversions is that of the ops, and its formulas are what they count."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import graphc.ops  # noqa: F401  (registers the ops)
from graphc.ir.collectives import CollectiveKind
from graphc.ir.op import all_ops
from graphc.ir.orders import Order
from graphc.ir.placement import Home, Partial, R, Split
from graphc.ops.collective import Conversion
from graphc.ops.conversion_table import conversion_over
from graphc.runtime.transports.transport import Primitives

FILE = Path(__file__).parents[2] / "spec" / "placement.md"
BETWEEN = re.compile(r"(<!-- conversions: .* -->\n)(.*?)(<!-- end -->)", re.DOTALL)

SENT = {
    "all_reduce": "2 (n-1)/n · b",
    "tree_reduce": "2 (n-1)/n · b",
    "reduce_scatter": "(n-1)/n · b",
    "all_gather": "(n-1)/n · b",
    "all_to_all": "(n-1)/n² · b",
    "reduce": "(n-1)/n · b",
    "pull": "(n-1)/n · b",
}
STATES = (R, Split(0), Split(1), Partial(), Home(0))


def conversions() -> dict[str, Conversion]:
    """Every conversion that the table of graphc.ops.conversion_table makes, by name."""
    made = {}
    for over in ("space", "time"):
        for source in STATES:
            for target in STATES:
                for order in (None, *Order):
                    op = conversion_over(over, "a", source, target, order)
                    if op is not None:
                        made.setdefault(op.name, op)
    return made


def general(state: object) -> str:
    """S(d) for a split, whichever dim, and H(k) for a home, whichever place."""
    return re.sub(r"(?<=S\()\d", "d", re.sub(r"(?<=H\()\d", "k", str(state)))


def row(op: Conversion) -> str:
    source, target = map(general, op.states)
    if source == target:
        source, target = "S(d)", "S(e)"
    says = re.sub(r"^\S+ -> \S+ over \w+[:,] ", "", (type(op).__doc__ or "").splitlines()[0])
    return f"| {op.over} | {source} → {target} | `{op.name}` | {SENT.get(op.name, '0')} | {says} |"


def table() -> str:
    head = ["| over | from → to | op | a device sends | what it does |", "| --- " * 5 + "|"]
    return "".join(f"{line}\n" for line in [*head, *map(row, conversions().values())])


def test_the_table_is_fresh(update: bool) -> None:
    text = FILE.read_text(encoding="utf-8")
    fresh = BETWEEN.sub(lambda m: m.group(1) + table() + m.group(3), text)
    if update:
        FILE.write_text(fresh, encoding="utf-8")
    assert text == fresh or update


def test_every_conversion_is_in_the_table() -> None:
    known = {n for n, op in all_ops().items() if issubclass(op, Conversion)}
    assert set(conversions()) == known


@pytest.mark.parametrize("name", conversions())
def test_a_formula_is_what_the_op_counts(name: str) -> None:
    op = conversions()[name]
    for n in (1, 2, 3, 8):
        expected = SENT.get(name, "0").replace("²", "**2").replace(" · ", "*").replace("2 (", "2*(")
        assert op.traffic(n, 1000.0) == pytest.approx(eval(expected, {"n": n, "b": 1000.0}))


def test_what_sends_is_a_collective_of_a_kind_that_every_transport_has() -> None:
    sent = {name: op.collective for name, op in conversions().items() if op.communicates}
    assert set(sent) == set(SENT)
    kinds = {name: str(collective.kind) for name, collective in sent.items()}
    assert kinds == {name: name for name in SENT} | {
        "pull": "broadcast", "tree_reduce": "all_reduce",
    }  # fmt: skip
    assert {*map(str, CollectiveKind)} == Primitives.__abstractmethods__
    assert {*kinds.values(), "barrier"} == {*map(str, CollectiveKind)}
