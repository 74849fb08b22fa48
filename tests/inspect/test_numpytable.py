"""spec/numpy.md is what the handlers say."""

from __future__ import annotations

from pathlib import Path

from graphc.frontend import numpy_table
from graphc.inspect.numpytable import numpy_markdown

SPEC = Path(__file__).parents[2] / "spec" / "numpy.md"


def test_the_list_of_numpy_functions_is_not_stale() -> None:
    assert SPEC.read_text() == numpy_markdown(), (
        "write it anew: python -m graphc.inspect.numpytable > spec/numpy.md"
    )


def test_the_list_names_every_function_and_its_advice() -> None:
    text = numpy_markdown()
    assert all(f"| `np.{name}` | " in text for name in numpy_table.NAMES)
    assert all(f"| `np.{name}` | {why} |" in text for name, why in numpy_table.ADVICE.items())
    assert all(f"`.{method}()`" in text for method in numpy_table.METHODS)
