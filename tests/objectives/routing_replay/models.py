"""Tiny random models of each family that routing replay knows, and the batch they are tried on."""

from __future__ import annotations

from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers")

SIZE: dict[str, Any] = {
    "vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4,
    "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "attention_dropout": 0.0,
}  # fmt: skip
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3": ("Qwen3Moe", {
        "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "intermediate_size": 32,
        "norm_topk_prob": True, "head_dim": 8, "decoder_sparse_step": 1, "mlp_only_layers": [1],
    }),
    "olmoe": ("Olmoe", {"num_experts": 8, "num_experts_per_tok": 3, "intermediate_size": 16, "norm_topk_prob": False}),
    "mixtral": ("Mixtral", {"num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 16}),
    "gpt_oss": ("GptOss", {
        "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 16, "head_dim": 8, "sliding_window": 8,
    }),
    "deepseek": ("DeepseekV3", {
        "n_routed_experts": 8, "num_local_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
        "intermediate_size": 32, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1, "n_shared_experts": 1,
        "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8,
        "routed_scaling_factor": 2.5, "norm_topk_prob": True,
    }),
}  # fmt: skip


def tiny(family: str, seed: int = 0, **changes: Any) -> Any:
    """Random weights large enough for routing to differ between tokens; every router has its own."""
    name, own = FAMILIES[family]
    config = getattr(transformers, f"{name}Config")(**{**SIZE, **own, **changes})
    torch.manual_seed(seed)
    model = getattr(transformers, f"{name}ForCausalLM")(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0.0, 0.2)
    return model.eval()


def batch(rows: int = 3, tokens: int = 9, seed: int = 0) -> torch.Tensor:
    return torch.randint(3, 61, (rows, tokens), generator=torch.Generator().manual_seed(seed))


def perturb(model: Any, replay: Any, scale: float = 0.5) -> None:
    """Move every router's weight, so that natural routing changes."""
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for router in replay.routers:
            weight = router.module.weight
            weight += scale * torch.randn(weight.shape, generator=generator).to(weight)
