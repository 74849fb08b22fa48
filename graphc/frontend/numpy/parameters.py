"""The tree of parameters as its leaves, each a `Param`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from graphc.frontend.numpy.declare import Param
from graphc.frontend.numpy.pytree import Structure, flatten

_UNSAID = Param()
_OPTIONS = ("decay", "trainable", "sparse", "aggregation")


def parameters(tree: Any, root: str) -> tuple[dict[str, Param], Structure]:
    """The leaves by dotted name, and the form of the tree; see `flatten`.

    The metadata of a dataclass field says what its leaf does not: so an array that was trained, in
    the place of the `graphc.param` that it came from, has the same options.
    """
    leaves, form = flatten(tree, root)
    metadata = form.metadata
    return {name: _as_param(x, metadata[name]) for name, x in leaves.items()}, form


def _as_param(x: Any, metadata: Mapping[str, Any]) -> Param:
    leaf = x if isinstance(x, Param) else Param(x)
    options = {k: metadata[k] for k in _OPTIONS if k in metadata}
    unsaid = {k: v for k, v in options.items() if getattr(leaf, k) == getattr(_UNSAID, k)}
    return replace(leaf, **unsaid) if unsaid else leaf
