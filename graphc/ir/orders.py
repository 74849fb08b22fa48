"""Orders: how contributions to one sum are added, at each place where they meet.

    add_n       all of them at once: one n-ary add, everything is kept until the last has come
    tree        balanced pairs, added as they come: at most ceil(log2 n) + 2 are alive
    accumulate  one running sum: at most two are alive

They meet in three places: where one tensor is used several times (`fanin`), from turn to turn of
an accumulation (`turns`), and between the devices of a mesh (`devices`). An order never changes
the mathematical value.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from graphc.support.errors import GraphcError, did_you_mean

ORDERS = ("add_n", "tree", "accumulate")


@dataclass(frozen=True)
class Orders:
    """The order that is chosen for each place; '' where nothing is."""

    fanin: str = ""
    turns: str = ""
    devices: str = ""

    def over(self, other: Orders) -> Orders:
        """These choices, and the other's where this one has none."""
        return Orders(*(getattr(self, p) or getattr(other, p) for p in PLACES))

    def of_sums(self) -> Orders:
        """The choices for sums over turns and devices alone."""
        return replace(self, fanin="")

    def __str__(self) -> str:
        chosen: list[str] = [getattr(self, p) for p in PLACES]
        if len(set(chosen)) == 1:
            return chosen[0]
        return "+".join(f"{p}={o}" for p, o in zip(PLACES, chosen, strict=True) if o)


PLACES = tuple(f.name for f in fields(Orders))


def parse_orders(text: str) -> Orders:
    """The orders that `tree`, `devices=tree,turns=add_n` say. Raises G0308.

    One word is the order at every place; places are joined by `,` or `+`.
    """
    parts = [p.strip() for p in text.replace("+", ",").split(",") if p.strip()]
    if len(parts) == 1 and "=" not in parts[0]:
        return Orders(*[_known(parts[0], ORDERS, "order")] * len(PLACES))
    given: dict[str, str] = {}
    for part in parts:
        place, _, order = (x.strip() for x in part.partition("="))
        if place in given:
            raise GraphcError("G0308", f"order '{text}' says twice what {place} takes")
        given[_known(place, PLACES, "place")] = _known(order, ORDERS, "order")
    return Orders(**given)


REDUCTIONS = ("sum", "mean")
FANIN_MEAN = "fanin_mean"  # the mean over the uses of each variable: asked for, not checked


def checked_reduction(text: str) -> str:
    """The reduction that `text` names: how a loss combines its examples. Raises G0309."""
    if text and text not in (*REDUCTIONS, FANIN_MEAN):
        hint = did_you_mean(text, REDUCTIONS) or f"known: {', '.join(REDUCTIONS)}"
        raise GraphcError("G0309", f"there is no reduction '{text}'", help=hint)
    return text


def _known(word: str, words: tuple[str, ...], what: str) -> str:
    if word not in words:
        hint = did_you_mean(word, words) or f"known: {', '.join(words)}"
        help = f"{hint}; write tree, or devices=tree,turns=accumulate"
        raise GraphcError("G0308", f"there is no {what} '{word}'", help=help)
    return word
