"""Programs whose dims are all as long as the batch, so that a value is cut along any dim by any
axis: a parameter along the batch's, the batch along a parameter's.

No layout that a strategy can ask for is out of reach: whatever placing chooses, partition finds the
way to it, and the step is what it is on one device.
"""

from __future__ import annotations

import random

from laws.programs.judge import judge
from laws.programs.program import Leaf, Program, Statement

SIZE = 4
SPACES = (
    "mirrored(2)", "tensor_split(2)", 'tensor_split(2, {"w0": 0})', 'tensor_split(2, {"w0": 1})',
    'tensor_split(2, {"w0": 0, "w1": 0})', "zero(2)", "zero(2, stage=2)", "zero(2, stage=3)",
    "central_storage(2)", "parameter_server(2, 2)", 'mirrored(2) * tensor_split(2, {"w0": 0})',
    'zero(2, stage=3) * tensor_split(2, {"w0": 1})', "zero(2, stage=2) * mirrored(2)",
)  # fmt: skip
LEAVES = (
    Leaf("w0", "params", (SIZE, SIZE), "float32", "normal"),
    Leaf("w1", "params", (SIZE,), "float32", "normal"),
    Leaf("x0", "batch", (None, SIZE), "float32", "normal"),
    Leaf("x1", "batch", (None,), "float32", "normal"),
)
TWO = ("{} + {}", "{} * {}", "np.maximum({}, {})", "{} @ {}")
ONE = (
    "np.tanh({})", "{}.T", "np.sum({}, axis=0)", "np.mean({}, axis=-1)", "np.cumsum({}, axis=-1)",
    "np.max({}, axis=0)", "np.sum({})", "{}[..., ::-1]", "np.square({})",
)  # fmt: skip


def drawn(seed: int) -> Program:
    """A program of a few statements, which uses every parameter."""
    rng = random.Random(f"square {seed}")
    ranks = {leaf.name: len(leaf.shape) for leaf in LEAVES}
    statements: list[Statement] = []
    for i in range(rng.randrange(2, 6)):
        text, uses, rank = _expression(rng, ranks)
        statements.append(Statement(f"v{i}", text, uses))
        ranks[f"v{i}"] = rank
    last = statements[-1].name
    loss = tuple(Statement("", f"np.mean({last} * {w})", (last, w)) for w in ("w0", "w1"))
    return Program(seed, (SIZE, SIZE), LEAVES, tuple(statements), loss, (last,)).needed()


def _expression(rng: random.Random, ranks: dict[str, int]) -> tuple[str, tuple[str, ...], int]:
    """A text over some of the names, late ones more often; the names; its rank."""
    late = [*ranks, *list(ranks)[-2:]]
    if rng.random() < 0.6:
        text, a, b = rng.choice(TWO), rng.choice(late), rng.choice(late)
        if "@" in text and not (ranks[a] and ranks[b]):
            text = "{} + {}"
        product = ranks[a] + ranks[b] - 2 if "@" in text else max(ranks[a], ranks[b])
        return text.format(a, b), (a, b), product
    a = rng.choice([x for x in late if ranks[x]])
    text = rng.choice(ONE)
    falls = 0 if "axis" not in text or "cumsum" in text else 1
    rank = 0 if text == "np.sum({})" else ranks[a] - falls
    return text.format(a), (a,), rank


def strategy_of(seed: int) -> str:
    """A strategy over space and over time, in either order."""
    rng = random.Random(f"strategy {seed}")
    parts = [rng.choice(SPACES), f"accumulate({rng.choice((2, 3))})"]
    return " * ".join(rng.sample(parts, 2))


def check(seed: int) -> None:
    """The law for the program and the strategy of that seed."""
    program, strategy = drawn(seed), strategy_of(seed)
    verdict = judge(program, strategy, ("reference",))
    assert not verdict.defects, f"{strategy}: {verdict.defects[0]}\n\n{program.text}"
    assert not verdict.refused, f"{strategy}: {verdict.refused}\n\n{program.text}"
