"""`spec/ops.md` is what the definitions say today."""

from pathlib import Path

from graphc.inspect.op_table import ops_markdown
from graphc.ir.op import all_ops, record_names
from graphc.ops import COMPOSITES

SPEC = Path(__file__).parents[2] / "spec" / "ops.md"


def test_spec_of_the_ops_is_not_stale() -> None:
    assert SPEC.read_text() == ops_markdown(), (
        "write it anew: python -m graphc.inspect.op_table > spec/ops.md"
    )


def test_every_op_and_composite_is_in_the_table() -> None:
    text = ops_markdown()
    assert all(f"| `{name}` |" in text for name in all_ops())
    assert all(f"| `{name}(" in text for name in COMPOSITES)
    assert {"adam", "he_normal", "cosine_decay"} <= set(record_names())


def test_bars_in_formulas_do_not_break_the_table() -> None:
    rows = [line for line in ops_markdown().splitlines() if line.startswith("| `abs`")]
    assert rows[0].count("|") - rows[0].count("\\|") == 7
