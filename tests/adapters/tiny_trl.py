"""A tiny real Llama on disk, a byte tokenizer with Qwen3's chat template, and generation that writes what a test says.

Only `generate` is scripted; the forward, the loss, the optimizer and TRL's own tool loop are real.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig
from trl.chat_template_utils import qwen3_chat_template

torch.set_num_threads(1)
END = "<|im_end|>"


def make_tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        eos_token=END,
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )
    tokenizer.add_tokens(
        ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
    )
    tokenizer.chat_template = qwen3_chat_template
    return tokenizer


def tiny_model(folder: Path) -> tuple[str, PreTrainedTokenizerFast]:
    """Weights on disk: TRL builds reference models from the path."""
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=4096, tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, initializer_range=0.2,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder), tokenizer


def tool_call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>{END}"


def scripted(model: Any, tokenizer: Any, turn: Callable[[int, int], str]) -> Any:
    """`turn(row, number of tool results so far)` gives the text the model writes next."""

    def generate(input_ids: torch.Tensor | None = None, **_: Any) -> torch.Tensor:
        assert input_ids is not None
        rows = []
        for row, ids in enumerate(input_ids.tolist()):
            text = turn(row, tokenizer.decode(ids).count("<tool_response>"))
            rows.append(torch.tensor(tokenizer(text, add_special_tokens=False)["input_ids"]))
        new = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=tokenizer.pad_token_id)
        return torch.cat([input_ids, new], dim=1)

    model.generate = generate
    return model


def chat_rows(count: int = 8) -> Dataset:
    return Dataset.from_list(
        [{"prompt": [{"role": "user", "content": f"What is {i}+{i}?"}]} for i in range(count)]
    )


def text_rows(count: int = 8) -> Dataset:
    return Dataset.from_list([{"prompt": f"row {i}: "} for i in range(count)])


def grpo_config(folder: Path, **changes: Any) -> GRPOConfig:
    arguments = {
        "output_dir": str(folder / "out"), "per_device_train_batch_size": 4, "num_generations": 4,
        "max_completion_length": 12, "max_steps": 3, "logging_steps": 1, "report_to": [], "use_cpu": True, "bf16": False,
        "save_strategy": "no", "learning_rate": 1e-3, "disable_tqdm": True, "seed": 1,
    }  # fmt: skip
    return GRPOConfig(**{**arguments, **changes})


def random_reward(completions: list[Any], **_: Any) -> list[float]:
    return [float(torch.rand(())) for _ in completions]
