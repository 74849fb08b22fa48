"""Writes torch.npz: what PyTorch's modules give for the cases, and the gradients.

    cd tests && python -m layers.record_torch   # where torch is installed beside graphc

For each case, `x`, the weights by path, the result `y`, and the gradients of sum(y * weight), where
weight is as long as y and counts from 1 to 2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from layers.torch_cases import CASES
from torch import nn

from graphc import layers as L
from graphc.frontend.numpy.pytree import flatten

RNG = np.random.default_rng(0)
Weights = dict[str, torch.Tensor]


def first(x: torch.Tensor) -> torch.Tensor:
    return torch.movedim(x, -1, 1)


def last(x: torch.Tensor) -> torch.Tensor:
    return torch.movedim(x, 1, -1)


def convolution(layer: Any, w: Weights, x: torch.Tensor) -> torch.Tensor:
    moved = isinstance(layer, L.convolution.ConvTranspose)
    name = f"conv{'_transpose' if moved else ''}{layer.rank}d"
    weight = torch.movedim(w["w"], (-2, -1), (0, 1) if moved else (1, 0))
    options = {k: getattr(layer, k) for k in ("stride", "padding", "dilation", "groups")}
    if moved:
        options["output_padding"] = layer.output_padding
    y = getattr(nn.functional, name)(first(x), weight, w.get("b"), **options)
    return last(y)


def pool(layer: Any, w: Weights, x: torch.Tensor) -> torch.Tensor:
    kind = "max" if isinstance(layer, L.MaxPool) else "avg"
    function = getattr(nn.functional, f"{kind}_pool{x.ndim - 2}d")
    padding = 0 if layer.padding == "valid" else layer.padding
    more = {} if kind == "max" else {"count_include_pad": False}
    return last(function(first(x), layer.size, layer.stride, padding, **more))


def attention(layer: Any, w: Weights, x: torch.Tensor) -> torch.Tensor:
    own = nn.MultiheadAttention(layer.width, layer.heads, bias=layer.bias, batch_first=True)
    mask = None if layer.bias else nn.Transformer.generate_square_subsequent_mask(x.shape[1])
    names = {
        "in_proj_weight": torch.cat([w[f"{k}.w"].T for k in "qkv"]),
        "out_proj.weight": w["out.w"].T,
    }
    if layer.bias:
        names |= {
            "in_proj_bias": torch.cat([w[f"{k}.b"] for k in "qkv"]),
            "out_proj.bias": w["out.b"],
        }
    return torch.func.functional_call(own, names, (x, x, x), {"attn_mask": mask})[0]


def recurrent(layer: Any, w: Weights, x: torch.Tensor, at: str = "") -> torch.Tensor:
    kinds = {L.LSTM: nn.LSTM, L.GRU: nn.GRU, L.SimpleRNN: nn.RNN}
    own = kinds[type(layer)](layer.inputs, layer.units, batch_first=True)
    both = (
        [w[f"{at}bx"], w[f"{at}bh"]] if isinstance(layer, L.GRU) else [w[f"{at}b"], 0 * w[f"{at}b"]]
    )
    weights = [w[f"{at}wx"].T, w[f"{at}wh"].T, *both]
    names = dict(zip((n for n, _ in own.named_parameters()), weights, strict=True))
    x = torch.flip(x, [1]) if layer.reverse else x
    y, _ = torch.func.functional_call(own, names, (x,))
    if not layer.return_sequences:
        return y[:, -1]
    return torch.flip(y, [1]) if layer.reverse else y


def normalized(layer: Any, w: Weights, x: torch.Tensor) -> torch.Tensor:
    f = nn.functional
    match layer:
        case L.LayerNorm():
            return f.layer_norm(x, x.shape[-1:], w["scale"], w["shift"], layer.eps)
        case L.RMSNorm():
            return f.rms_norm(x, x.shape[-1:], w["scale"], layer.eps)
        case L.GroupNorm():
            return last(f.group_norm(first(x), layer.groups, w["scale"], w["shift"], layer.eps))
        case _:
            mean, var = torch.zeros(3), torch.ones(3)
            y = f.batch_norm(first(x), mean, var, w["scale"], w["shift"], True, 0.1, layer.eps)
            return last(y)


def result(layer: Any, w: Weights, x: torch.Tensor) -> torch.Tensor:
    match layer:
        case L.Dense():
            return nn.functional.linear(x, w["w"].T, w["b"])
        case L.convolution.Conv():
            return convolution(layer, w, x)
        case L.MaxPool() | L.AvgPool():
            return pool(layer, w, x)
        case L.MultiHeadAttention():
            return attention(layer, w, x)
        case L.Bidirectional():
            parts = (layer.forward, "forward."), (layer.backward, "backward.")
            return torch.cat([recurrent(part, w, x, at) for part, at in parts], -1)
        case L.recurrent.Recurrent():
            return recurrent(layer, w, x)
        case _:
            return normalized(layer, w, x)


def drawn(shape: tuple[int, ...]) -> torch.Tensor:
    x = RNG.normal(size=shape).astype(np.float32).round(2)
    return torch.tensor(x, requires_grad=True)


def main() -> None:
    found: dict[str, np.ndarray] = {}
    for name, (make, shape) in CASES.items():
        layer, x = make(), drawn(shape)
        leaves = flatten(layer, "layer")[0]
        shapes = {k: getattr(p, "shape", ()) for k, p in leaves.items() if k not in ("mean", "var")}
        weights = {k: drawn(s) for k, s in shapes.items()}
        y = result(layer, weights, x)
        weight = torch.linspace(1, 2, y.numel()).reshape(y.shape)
        (y * weight).sum().backward()
        for key, value in {"x": x, "y": y, **weights}.items():
            found[f"{name}/{key}"] = value.detach().numpy()
            if value.grad is not None and key != "y":
                found[f"{name}/{key}.gradient"] = value.grad.numpy()
    np.savez_compressed(Path(__file__).with_name("torch.npz"), **found)


if __name__ == "__main__":
    main()
