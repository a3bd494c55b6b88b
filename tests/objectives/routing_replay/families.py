"""Every causal language model of transformers with a router, tiny, and its own code with other experts forced."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers")

EXPERTS, TOP = 4, 2
VALUES: dict[str, Any] = {
    "vocab_size": 31, "hidden_size": 16, "d_model": 16, "num_hidden_layers": 2, "n_layers": 2, "num_layers": 2,
    "num_attention_heads": 2, "n_heads": 2, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 16,
    "moe_intermediate_size": 8, "expert_ffn_hidden_size": 8, "ffn_hidden_size": 16, "intermediate_size_mlp": 16,
    "shared_expert_intermediate_size": 8, "moe_shared_expert_intermediate_size": 8, "max_position_embeddings": 32,
    "num_experts": EXPERTS, "num_local_experts": EXPERTS, "n_routed_experts": EXPERTS, "moe_num_experts": EXPERTS,
    "num_experts_per_tok": TOP, "num_experts_per_token": TOP, "moe_topk": TOP, "moe_k": TOP, "moe_top_k": TOP,
    "top_k_experts": TOP, "n_group": 1, "topk_group": 1, "num_expert_group": 1, "n_shared_experts": 1,
    "num_shared_experts": 1, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4,
    "v_head_dim": 8, "first_k_dense_replace": 0, "num_dense_layers": 0, "moe_layer_start_index": 0,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "interleave_moe_layer_step": 1, "expert_layer_period": 1,
    "expert_layer_offset": 0, "zero_expert_num": 0, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "routed_scaling_factor": 1.5, "route_scale": 1.5, "router_scaling_factor": 1.5, "attention_dropout": 0.0, "linear_num_value_heads": 2, "linear_num_key_heads": 2,
    "linear_key_head_dim": 8, "linear_value_head_dim": 8, "mamba_num_heads": 4, "mamba_head_dim": 8,
    "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_expand": 2, "n_groups": 1, "ssm_state_size": 8, "mamba_d_state": 8,
    "index_topk": 8, "index_n_heads": 2, "index_head_dim": 8, "num_nextn_predict_layers": 0, "enable_moe_block": True,
    "vocab_size_per_layer_input": 31, "hidden_size_per_layer_input": 4, "global_head_dim": 8, "sliding_window": 8,
    "shared_intermediate_size": 16, "use_mamba_kernels": False, "seq_len": 32, "max_seq_len": 32,
}  # fmt: skip
"""Sizes by the field's name: a configuration takes those that it has."""

SPARSE = ["sparse", "sparse"]
ATTENTION = ["full_attention", "full_attention"]
OWN: dict[str, dict[str, Any]] = {
    "axk1": {"mlp_layer_types": SPARSE},
    "beam": {"mlp_layer_types": SPARSE},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10_000.0},
        "ffn_config": {"ffn_hidden_size": 8, "hidden_size": 16, "moe_num_experts": EXPERTS, "moe_top_k": TOP},
    },
    "deepseek_v2": {"n_group": 2, "topk_group": 2, "topk_method": "group_limited_greedy"},
    "deepseek_v3": {"n_group": 2, "topk_group": 1},
    "deepseek_v4": {"mlp_layer_types": ["moe", "moe"]},
    "dots3_note": {"num_attention_heads": 2, "num_key_value_heads": 2},
    "kimi_linear": {"linear_head_dim": 8, "linear_num_heads": 2, "layer_types": ATTENTION},
    "lfm2_moe": {"layer_types": ATTENTION},
    "longcat_flash": {"head_dim": 4},
    "mimo_v2_flash": {"head_dim": 24, "layer_types": ATTENTION},
    "zaya": {"num_experts_per_tok": 1},
}
"""Fields of one family alone."""


def families() -> list[str]:
    """Return the folders of the installed transformers whose model has a router class and a causal head."""
    root = Path(transformers.__file__).parent / "models"
    pattern = re.compile(r"^class \w*(?:Router|TopKGating|MoE\w*Gate)\(", re.MULTILINE)
    return [
        path.parent.name
        for path in sorted(root.glob("*/modeling_*.py"))
        if pattern.search(path.read_text()) and head(path)
    ]


def head(path: Path) -> str | None:
    heads = re.findall(r"^class (\w+ForCausalLM)\(", path.read_text(), re.MULTILINE)
    return heads[0] if heads else None


def tiny_family(family: str) -> Any:
    """Return its model with random weights, in evaluation."""
    path = next((Path(transformers.__file__).parent / "models" / family).glob("modeling_*.py"))
    module = __import__(f"transformers.models.{family}.{path.stem}", fromlist=["x"])
    kind = getattr(module, head(path))
    config_class = kind.config_class
    default = config_class()
    values = {name: value for name, value in VALUES.items() if _has(default, name)}
    for name in ("layer_types", "mlp_layer_types", "layers_block_type", "hybrid_layer_pattern"):
        values.pop(name, None)
    if hasattr(default, "qk_rope_head_dim"):
        values.pop("head_dim", None)
    config = config_class(**{**values, **OWN.get(family, {})})
    torch.manual_seed(0)
    model = kind(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0.0, 0.3)
    return model.eval()


def _has(config: Any, name: str) -> bool:
    try:
        return hasattr(config, name)
    except RuntimeError:  # transformers: a field that differs between the layers
        return False


@contextmanager
def forced_choice(routers: Any, routes: torch.Tensor) -> Iterator[None]:
    """Answer the top-k of every router with these routes (B, T, L, K): the family's own code does the rest."""
    current: list[torch.Tensor] = []
    plain = torch.topk, torch.Tensor.topk

    def topk(own: Any) -> Any:
        def run(scores: torch.Tensor, *args: Any, **named: Any) -> Any:
            result = own(scores, *args, **named)
            if (
                current
                and result[1].shape == current[-1].shape
                and scores.shape[1] == EXPERTS
                and scores.dim() == 2
            ):
                return torch.return_types.topk((scores.gather(1, current[-1]), current[-1]))
            return result

        return run

    hooks = []
    for layer, router in enumerate(routers):
        module, chosen = router.block or router.module, routes[:, :, layer].flatten(0, 1).long()
        hooks.append(module.register_forward_pre_hook(lambda m, a, chosen=chosen: current.append(chosen)))
        hooks.append(module.register_forward_hook(lambda m, a, o: current.clear(), prepend=True))
    torch.topk, torch.Tensor.topk = topk(plain[0]), topk(plain[1])  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.topk, torch.Tensor.topk = plain  # type: ignore[assignment]
        for hook in hooks:
            hook.remove()
