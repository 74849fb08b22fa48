"""A small GPT, written in NumPy, learns to spell from Python's manual, character by character.

    python examples/characters.py --strategy 'mirrored(2)'

The text is pydoc_data.topics, which every Python has. The last tenth is held out; the figure to
beat is the entropy of single characters, what a model scores that knows their frequencies only.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import graphc

Ids = NDArray[np.int32]
Tree = dict[str, Any]

CONTEXT, WIDTH, HEADS, BATCH = 32, 64, 4, 32
CHARACTERS = 96  # printable ASCII, and the newline as id 95
STEPS = 200


# -- the text --------------------------------------------------------------------------------------


def text() -> tuple[Ids, Ids]:
    """(training text, held-out text) as ids: every paragraph once, pages in order of name."""
    from pydoc_data.topics import topics

    paragraphs = [p for name in sorted(topics) for p in topics[name].split("\n\n")]
    whole = "\n\n".join(dict.fromkeys(paragraphs)).encode("ascii", "replace")
    codes = np.frombuffer(whole, np.uint8).astype(np.int32)
    ids = np.where(codes == ord("\n"), CHARACTERS - 1, np.clip(codes - 32, 0, CHARACTERS - 2))
    cut = len(ids) * 9 // 10
    return ids[:cut], ids[cut:]


def windows(ids: Ids, starts: NDArray[np.int64]) -> dict[str, Ids]:
    """What is read, and what comes next at every place of it: both [n, CONTEXT]."""
    at = starts[:, None] + np.arange(CONTEXT)
    return {"x": ids[at], "y": ids[at + 1]}


def batches(ids: Ids, steps: int, seed: int = 0) -> Iterator[dict[str, Ids]]:
    """Random windows."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        yield windows(ids, rng.integers(0, len(ids) - CONTEXT, BATCH))


def in_order(ids: Ids) -> Iterator[dict[str, Ids]]:
    """All windows, one after the other."""
    starts = np.arange(0, len(ids) - CONTEXT, CONTEXT)
    for i in range(0, len(starts), BATCH):
        yield windows(ids, starts[i : i + BATCH])


def unigram_bits(train: Ids, test: Ids) -> float:
    """Bits per character of the held-out text, coded by the training text's frequencies."""
    counts = np.bincount(train, minlength=CHARACTERS) + 1.0
    return float(-np.log2(counts / counts.sum())[test].mean())


# -- the model -------------------------------------------------------------------------------------


def parameters() -> Tree:
    """The tree of parameters; each is made on the devices, from its initializer."""
    small = graphc.init.normal(0.02)
    weight, ones = graphc.init.glorot_uniform(), graphc.init.ones()
    return {
        "characters": graphc.param((CHARACTERS, WIDTH), init=small),
        "places": graphc.param((CONTEXT, WIDTH), init=small),
        "attention": {
            "scale": graphc.param(WIDTH, init=ones, decay=False),
            "qkv": graphc.param((WIDTH, 3 * WIDTH), init=weight),
            "out": graphc.param((WIDTH, WIDTH), init=weight),
        },
        "mlp": {
            "scale": graphc.param(WIDTH, init=ones, decay=False),
            "inner": graphc.param((WIDTH, 4 * WIDTH), init=weight),
            "out": graphc.param((4 * WIDTH, WIDTH), init=weight),
        },
        "logits": graphc.param((WIDTH, CHARACTERS), init=weight),
    }


def normalized(x: Any, scale: Any) -> Any:
    """Layer norm without a shift."""
    centered = x - x.mean(axis=-1, keepdims=True)
    return centered / np.sqrt(np.mean(centered**2, axis=-1, keepdims=True) + 1e-5) * scale


def attention(x: Any, p: Tree) -> Any:
    """Causal self-attention."""
    n, t, _ = x.shape
    qkv = (x @ p["qkv"]).reshape(n, t, HEADS, 3, WIDTH // HEADS)
    q, k, v = (qkv[:, :, :, i].transpose(0, 2, 1, 3) for i in range(3))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(WIDTH // HEADS)
    scores = np.where(np.tri(t, dtype=bool), scores, -1e9)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = weights / weights.sum(axis=-1, keepdims=True)
    return (weights @ v).transpose(0, 2, 1, 3).reshape(n, t, WIDTH) @ p["out"]


def loss_fn(p: Tree, batch: Tree) -> Any:
    """The mean negative log likelihood of the next character, in nats."""
    h = p["characters"][batch["x"]] + p["places"]
    h = h + attention(normalized(h, p["attention"]["scale"]), p["attention"])
    inner = np.maximum(normalized(h, p["mlp"]["scale"]) @ p["mlp"]["inner"], 0)
    h = h + inner @ p["mlp"]["out"]
    loss = np.mean(graphc.nn.cross_entropy(h @ p["logits"], batch["y"]))
    graphc.report("bits", loss / np.log(2))
    return loss


def trainer(strategy: str, steps: int = STEPS, backend: str = "numpy") -> graphc.StepTrainer:
    """The compiled step."""
    example = windows(text()[0], np.arange(BATCH))
    rate = graphc.optim.linear_warmup(1e-2, 20, graphc.optim.cosine_decay(1e-2, steps))
    optimizer = [graphc.optim.clip_by_global_norm(1.0), graphc.optim.adamw(rate)]
    return graphc.compile(
        loss_fn, parameters(), example, optimizer=optimizer, strategy=strategy, backend=backend
    )


def main() -> None:
    """Train, and print what the held-out text costs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--strategy", default="mirrored(2)")
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    train, test = text()
    with trainer(options.strategy, options.steps) as step:
        for number, batch in enumerate(batches(train, options.steps), start=1):
            metrics = step.step(batch)
            if number % 50 == 0:
                print(f"step {number}: {metrics['bits']:.3f} bits per character")
        bits = step.evaluate(in_order(test))["bits"]
    print(f"held out: {bits:.3f} bits per character; single ones: {unigram_bits(train, test):.3f}")


if __name__ == "__main__":
    main()
