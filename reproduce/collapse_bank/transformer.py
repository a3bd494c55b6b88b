"""The lab agent as plain tensors: the shipped Llama without the library's overhead, some three times faster on one core.

Shapes: B sequences, T tokens, H heads of D numbers, V vocabulary. Sequences start at position 0 and are padded on the right, so a causal mask is
all the mask there is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from trimtab.lab.model import load_agent

__all__ = ["HEADS", "Cache", "Weights", "load_weights", "logits_of", "quantise", "token_logprobs"]

Weights = dict[str, Tensor]
LAYERS, HEADS, WIDTH = 3, 4, 96
SIZE = WIDTH // HEADS
EPSILON, THETA = 1e-6, 10_000.0


@dataclass
class Cache:
    """Keys and values of every layer, each (B, H, T, D); `length` of the T positions are filled."""

    keys: list[Tensor]
    values: list[Tensor]
    length: int = 0

    @classmethod
    def empty(cls, rows: int, positions: int) -> Cache:
        """Return a cache with room for that many positions."""
        shape = (rows, HEADS, positions, SIZE)
        return cls([torch.empty(shape) for _ in range(LAYERS)], [torch.empty(shape) for _ in range(LAYERS)])

    def select(self, rows: Tensor) -> None:
        """Keep these rows alone."""
        self.keys = [k[rows] for k in self.keys]
        self.values = [v[rows] for v in self.values]


def load_weights() -> Weights:
    """Return the shipped agent's parameters, projections that read the same input joined into one matrix."""
    state = {name: value.detach().clone() for name, value in load_agent()[0].state_dict().items()}
    weights: Weights = {"embedding": state["model.embed_tokens.weight"], "norm": state["model.norm.weight"]}
    for layer in range(LAYERS):
        source = f"model.layers.{layer}."
        attention = [state[f"{source}self_attn.{part}_proj.weight"] for part in "qkv"]
        gates = [state[f"{source}mlp.{part}_proj.weight"] for part in ("gate", "up")]
        weights[f"{layer}/norm_in"] = state[f"{source}input_layernorm.weight"]
        weights[f"{layer}/norm_mid"] = state[f"{source}post_attention_layernorm.weight"]
        weights[f"{layer}/qkv"] = torch.cat(attention)
        weights[f"{layer}/out"] = state[f"{source}self_attn.o_proj.weight"]
        weights[f"{layer}/gates"] = torch.cat(gates)
        weights[f"{layer}/down"] = state[f"{source}mlp.down_proj.weight"]
    return weights


def logits_of(weights: Weights, ids: Tensor, cache: Cache | None = None) -> Tensor:
    """Return next-token logits (B, T, V) of ids (B, T); with a cache the ids go on from it, and join it."""
    start = 0 if cache is None else cache.length
    count = ids.shape[1]
    cos, sin = (table[start : start + count] for table in _ROTATION)
    hidden = functional.embedding(ids, weights["embedding"])
    for layer in range(LAYERS):
        normed = _norm(hidden, weights[f"{layer}/norm_in"])
        parts = functional.linear(normed, weights[f"{layer}/qkv"]).view(*ids.shape, 3, HEADS, SIZE)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        query, key = _rotated(query, cos, sin), _rotated(key, cos, sin)
        if cache is not None:
            cache.keys[layer][:, :, start : start + count] = key
            cache.values[layer][:, :, start : start + count] = value
            key = cache.keys[layer][:, :, : start + count]
            value = cache.values[layer][:, :, : start + count]
        mixed = _attention(query, key, value)
        hidden = hidden + functional.linear(
            mixed.transpose(1, 2).reshape(*ids.shape, WIDTH), weights[f"{layer}/out"]
        )
        normed = _norm(hidden, weights[f"{layer}/norm_mid"])
        gate, up = functional.linear(normed, weights[f"{layer}/gates"]).chunk(2, dim=-1)
        hidden = hidden + functional.linear(functional.silu(gate) * up, weights[f"{layer}/down"])
    if cache is not None:
        cache.length = start + count
    return functional.linear(_norm(hidden, weights["norm"]), weights["embedding"])


def token_logprobs(weights: Weights, ids: Tensor, late: bool = False) -> tuple[Tensor, Tensor]:
    """Return the log-probability of each token after the first, and the entropy of its distribution; both (B, T), 0 at the first.

    `late` reads each token's probability one position too late, from the distribution that has already seen it: an off-by-one error.
    """
    logp = torch.log_softmax(logits_of(weights, ids), dim=-1)
    source = logp[:, 1:] if late else logp[:, :-1]
    first = logp.new_zeros(ids.shape[0], 1)
    chosen = source.gather(-1, ids[:, 1:, None])[..., 0]
    with torch.no_grad():
        entropy = -(source.exp() * source).sum(-1)
    return torch.cat([first, chosen], 1), torch.cat([first, entropy], 1)


@torch.no_grad()
def quantise(weights: Weights, bits: int) -> Weights:
    """Return the matrices rounded to symmetric integers of that many bits with one scale a matrix; 0 bits: copies."""
    if not bits:
        return {name: value.detach().clone() for name, value in weights.items()}
    top = 2 ** (bits - 1) - 1
    rounded: Weights = {}
    for name, value in weights.items():
        scale = value.abs().amax() / top
        rounded[name] = (value / scale).round().clamp(-top, top) * scale if value.dim() > 1 else value.clone()
    return rounded


def _norm(values: Tensor, scale: Tensor) -> Tensor:
    return functional.rms_norm(values, (WIDTH,), scale, EPSILON)


def _attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    if query.shape[2] > 1:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    scores = (query @ key.transpose(-1, -2)) * SIZE**-0.5  # the fused kernel costs more for one query
    return torch.softmax(scores, dim=-1) @ value


def _rotated(values: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = values.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def _rotation_table(positions: int = 512) -> tuple[Tensor, Tensor]:
    rate = THETA ** -(torch.arange(0, SIZE, 2) / SIZE)
    angle = torch.arange(positions)[:, None] * rate
    return angle.cos(), angle.sin()


_ROTATION = _rotation_table()
