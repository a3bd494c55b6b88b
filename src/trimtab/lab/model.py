"""The agent: a 0.45M-parameter Llama over characters, shipped as a checkpoint that `sft` made."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from trimtab.errors import TrimtabError
from trimtab.lab.tokenizer import BOS, EOS, PAD, VOCAB_SIZE, build_tokenizer


def agent_path() -> str:
    """Folder of the shipped checkpoint, for `from_pretrained` and for TRL, which wants a path and not a bare
    model.
    """
    return str(Path(__file__).parent / "assets" / "agent")


def fresh_agent(seed: int = 0) -> LlamaForCausalLM:
    """The untrained network: 3 layers, width 96, 4 heads, tied embeddings, float32."""
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=96,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
    )
    torch.manual_seed(seed)
    return LlamaForCausalLM(config)


def save_agent(model: LlamaForCausalLM, folder: str | Path) -> None:
    """Write config, weights (float32) and tokenizer into `folder`."""
    model.save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)


def load_agent(folder: str | Path | None = None) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """The shipped agent (or one that `sft` wrote into `folder`) with its tokenizer; `config._name_or_path` is
    set.
    """
    path = Path(folder or agent_path())
    if not (path / "model.safetensors").exists():
        raise TrimtabError(f"no agent in {path}: run python -m trimtab.lab.sft --out {path}")
    model = LlamaForCausalLM.from_pretrained(path, dtype=torch.float32)
    return model, build_tokenizer()
