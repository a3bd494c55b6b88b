"""Tiny dense models of each architecture, an owner for an engine without a trainer, and a reader of the exported numbers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tests.adapters.tiny_trl import make_tokenizer

KINDS: dict[str, Any] = {
    "llama": (LlamaConfig, LlamaForCausalLM, {"num_key_value_heads": 2}),
    "llama-biased": (LlamaConfig, LlamaForCausalLM, {"attention_bias": True, "mlp_bias": True, "head_dim": 24}),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {"tie_word_embeddings": True, "num_key_value_heads": 1}),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"num_key_value_heads": 2, "head_dim": 32}),
}  # fmt: skip


def tiny(kind: str, folder: Path, **changes: Any) -> str:
    """Two layers with a wide rotation: a wrong order of its pairs, of heads or of biases shows in every logit."""
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    settings = {
        "vocab_size": len(tokenizer), "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 4, "max_position_embeddings": 512, "initializer_range": 0.2, "bos_token_id": None,
        "rope_parameters": {"rope_theta": 5000.0, "rope_type": "default"}, "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id, "tie_word_embeddings": False,
    }  # fmt: skip
    config, model, own = KINDS[kind]
    net = model(config(**{**settings, **own, **changes}))
    for name, parameter in net.named_parameters():
        if parameter.dim() == 1:  # norms and biases that are not all alike
            torch.nn.init.normal_(parameter, mean=1.0 if "norm" in name else 0.0, std=0.3)
    net.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def loaded(path: str) -> Any:
    return AutoModelForCausalLM.from_pretrained(path).eval()


def owner(model: Any, step: int = 0) -> Any:
    """What `synchronise` asks of a trainer."""
    return SimpleNamespace(
        model=model,
        state=SimpleNamespace(global_step=step),
        accelerator=SimpleNamespace(unwrap_model=lambda net: net),
    )


def torch_logits(model: Any, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0]


def read_back(path: Path, net: Any) -> Any:
    """The exported file's numbers in `net`, dequantised by gguf; each of its parameters must be in the file, and nothing else."""
    import gguf

    config = net.config
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[config.model_type.upper()], config.num_hidden_layers)
    held = {
        t.name: torch.from_numpy(gguf.quants.dequantize(t.data, t.tensor_type).copy())
        for t in gguf.GGUFReader(path).tensors
    }
    for name, parameter in net.named_parameters():
        value = held.pop(names.get_name(name, try_suffixes=(".weight", ".bias"))).reshape(parameter.shape)
        if config.model_type == "llama" and ("q_proj" in name or "k_proj" in name):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            rows = torch.arange(len(value)).reshape(
                heads, -1
            )  # row 2i of a head is i of its first half, 2i + 1 of its second
            order = torch.cat([rows[:, 0::2], rows[:, 1::2]], dim=1).flatten()
            value = value[order]
        parameter.data = value.clone()
    assert not held
    return net
