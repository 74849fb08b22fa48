"""spec/numpy.md is what the handlers say."""

from __future__ import annotations

from pathlib import Path

from graphc.docs.numpy import numpy_markdown
from graphc.frontend.numpy import table
from graphc.support.hints import hints

SPEC = Path(__file__).parents[2] / "spec" / "numpy.md"


def test_the_list_of_numpy_functions_is_not_stale() -> None:
    assert SPEC.read_text() == numpy_markdown(), (
        "write it anew: python -m graphc.docs.numpy > spec/numpy.md"
    )


def test_the_list_names_every_function_and_its_advice() -> None:
    text = numpy_markdown()
    assert all(f"| `np.{name}` | " in text for name in table.NAMES)
    assert all(f"| `np.{name}` | {why} |" in text for name, why in hints("numpy").items())
    assert all(f"`.{method}()`" in text for method in table.METHODS)
