"""Faults of values at home."""

from __future__ import annotations

from typing import Any

from laws.fault import Patch, around, fault

import graphc.ir.placement
from graphc.ir.collectives import CollectiveKind
from graphc.passes.placing import over_space
from graphc.runtime.backends import site


@fault("verifier")
def _home_taken_for_everywhere(patch: Patch) -> None:
    """What one place has is taken for what all have."""

    def change(old: Any, have: Any, want: Any) -> bool:
        return bool(old(have, want)) or isinstance(have, graphc.ir.placement.Home)

    around(patch, graphc.ir.placement, "serves", change)


def _owned_by_the_first_place(patch: Patch, kind: CollectiveKind) -> None:
    def change(old: Any, collective: Any, group: Any, **options: Any) -> Any:
        if collective.kind is kind:
            options["owners"] = group[:1]
        return old(collective, group, **options)

    around(patch, site, "CollectiveCall", change)


@fault("run", late=True)
def _pulled_from_the_first_place(patch: Patch) -> None:
    """Everybody pulls from the first place, wherever the home is."""
    _owned_by_the_first_place(patch, CollectiveKind.BROADCAST)


@fault("run", late=True)
def _reduced_on_the_first_place(patch: Patch) -> None:
    """Sums that go home end at the first place, wherever the home is."""
    _owned_by_the_first_place(patch, CollectiveKind.REDUCE)


@fault("bytes")
def _nothing_runs_at_home(patch: Patch) -> None:
    """Updates are made everywhere, and kept at home."""
    patch.setattr(over_space, "owned_signatures", lambda *args: None)
