"""The leaves of a batch as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.frontend.numpy.leaves import converted, kind_of, leaf_name
from graphc.frontend.numpy.length import Traced
from graphc.frontend.numpy.pytree import flatten
from graphc.ir.graph import Graph
from graphc.support.errors import GraphcError
from graphc.support.masked_arrays import HELP, hides_entries

if TYPE_CHECKING:
    from graphc.ir.op import Array


def arrays_for(graph: Graph, leaves: Mapping[str, Any]) -> dict[str, Array]:
    """The leaves as arrays, numbers in the dtypes of the graph's inputs."""
    types = {name: node.tensor.dtype.numpy for name, node in graph.inputs.items()}
    numbers = bool | int | float
    return {
        name: np.asarray(x, types.get(name))
        if isinstance(x, numbers)
        else np.asarray(leaf_array(name, x))
        for name, x in leaves.items()
    }


def example_of(batch: Any) -> Any:
    """An example batch with arrays in place of other libraries' tensors. Raises G0806."""
    leaves, form = flatten(batch, "batch")
    return form.build({name: leaf_array(name, x) for name, x in leaves.items()})


def leaf_array(name: str, x: Any) -> Any:
    """A tensor of another library as an array; other leaves as they are. Raises G0806."""
    if hides_entries(x):
        text = f"{leaf_name('batch', name)} is a masked array that hides entries"
        raise GraphcError("G0806", text, help=HELP)
    if isinstance(x, np.ndarray | np.generic | Traced) or not hasattr(type(x), "__array__"):
        return x
    try:
        return np.asarray(x)
    except Exception as error:  # whatever the library raises, of a tensor on another device, say
        reason = str(error).partition("\n")[0]
        text = f"{leaf_name('batch', name)} is a {kind_of(x)} that can't be made an array: {reason}"
        raise GraphcError("G0806", text, help=converted(x)) from None
