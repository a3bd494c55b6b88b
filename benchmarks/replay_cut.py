"""How much of the mismatch does routing replay take away? A small mixture of experts, trained here on sums, against its rounded copy.

Figures: `replay_p99_mismatch_cut_bf16` and `_fp8`: 1 - p99 of |log pi_old - log mu| with the sampler's experts replayed, over the same
tokens with natural routing; intervals are bootstrapped by trajectory. bf16: weights and arithmetic; fp8: e4m3 weights, bf16 arithmetic.
Run by `benchmarks/objectives.py`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from trimtab.objectives import RoutingReplay
from trimtab.objectives.routing_replay import place_routes
from trimtab.training.inference_engines import RoundedEngine

__all__ = ["cuts"]

SYMBOLS = "0123456789+=; "
ROWS, TOKENS, STEPS = 256, 48, 400
SAMPLING = SimpleNamespace(temperature=1.0, top_k=0, top_p=1.0, min_p=None, repetition_penalty=1.0)


class Symbols:
    """A tokenizer of fourteen symbols, for RoundedEngine."""

    pad_token_id, eos_token_id = len(SYMBOLS), len(SYMBOLS) + 1

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [SYMBOLS.index(symbol) for symbol in text]}


def sums(rng: np.random.Generator, number: int) -> str:
    """`12+7=19; 3+45=48; ...`"""
    return "; ".join(f"{a}+{b}={a + b}" for a, b in rng.integers(0, 60, (number, 2)).tolist())


def trained(seed: int, steps: int) -> tuple[Any, float]:
    """A mixture of experts after that many steps on sums, and its last loss, nats a symbol."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model = Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            vocab_size=len(SYMBOLS) + 2, hidden_size=64, intermediate_size=128, moe_intermediate_size=64, num_hidden_layers=4,
            num_attention_heads=4, num_key_value_heads=4, head_dim=16, num_experts=16, num_experts_per_tok=2, norm_topk_prob=True,
            max_position_embeddings=256, output_router_logits=True, router_aux_loss_coef=0.01, bos_token_id=None,
            pad_token_id=Symbols.pad_token_id, eos_token_id=Symbols.eos_token_id,
        )
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    tokenizer, loss = Symbols(), torch.tensor(0.0)
    for _ in range(steps):
        ids = torch.tensor([tokenizer(sums(rng, 8))["input_ids"][:TOKENS] for _ in range(32)])
        out = model(input_ids=ids, labels=ids)
        out.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss = out.loss.detach() - 0.01 * out.aux_loss.detach()
    model.config.output_router_logits = False
    return model.eval(), float(loss)


def mismatches(model: Any, weights: Any, seed: int, rows: int) -> tuple[np.ndarray, np.ndarray, float]:
    """|log pi_old - log mu| (rows, TOKENS) with natural routing and with the sampler's, and the fraction of re-routed token-layers."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed + 1)
    engine = RoundedEngine(weights, max_new_tokens=TOKENS, compute=torch.bfloat16)
    accelerator = SimpleNamespace(unwrap_model=lambda inner: inner, device=torch.device("cpu"))
    owner = SimpleNamespace(
        accelerator=accelerator,
        model=model,
        state=SimpleNamespace(global_step=0),
        processing_class=Symbols(),
        args=SAMPLING,
    )
    out = engine([sums(rng, 2)[:7] for _ in range(rows)], owner)
    whole = [row for row, own in enumerate(out["completion_ids"]) if len(own) == TOKENS]
    ids = torch.tensor([out["prompt_ids"][row] + out["completion_ids"][row] for row in whole])
    mu = torch.tensor([out["logprobs"][row] for row in whole])
    exists = torch.ones_like(ids, dtype=torch.bool)
    routes, _ = place_routes([out["routes"][row] for row in whole], exists, allow_short=True)
    exists[:, -1] = False
    replay = RoutingReplay(model)

    @torch.no_grad()
    def gap() -> np.ndarray:
        logs = model(input_ids=ids).logits[:, -TOKENS - 1 : -1].log_softmax(-1)
        return (logs.gather(-1, ids[:, -TOKENS:, None])[..., 0] - mu).abs().numpy()

    natural = gap()
    with replay.replaying(routes, required=exists, compare=True) as replayed:
        forced = gap()
    replay.close()
    return natural, forced, float(replayed.changed.sum() / replayed.tokens.sum())


def cuts(
    seed: int = 0, steps: int = STEPS, rows: int = ROWS
) -> tuple[dict[str, tuple[float, float, float]], list[str]]:
    """(figure -> (value, low, high), lines that say on what)."""
    model, loss = trained(seed, steps)
    found, lines = (
        {},
        [f"mixture of experts trained to {loss:.2f} nats a symbol; {rows} rows of {TOKENS} tokens"],
    )
    for weights in ("bf16", "fp8"):
        natural, forced, changed = mismatches(model, weights, seed, rows)
        rng = np.random.default_rng(0)
        draws = []
        for _ in range(1000):
            drawn = rng.integers(0, len(natural), len(natural))
            draws.append(1 - np.quantile(forced[drawn], 0.99) / np.quantile(natural[drawn], 0.99))
        p99 = np.quantile(natural, 0.99), np.quantile(forced, 0.99)
        low, high = np.quantile(draws, [0.025, 0.975])
        found[f"replay_p99_mismatch_cut_{weights}"] = (float(1 - p99[1] / p99[0]), float(low), float(high))
        lines.append(
            f"{weights}: p99 of |mismatch| {p99[0]:.4f} nats natural, {p99[1]:.4f} replayed; {changed:.1%} re-routed"
        )
    return found, lines
