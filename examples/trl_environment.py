"""GRPO with TRL's defaults and an environment, watched with one added line.

    python examples/trl_environment.py [MODEL]

MODEL is any chat model that TRL can give tools to (say Qwen/Qwen3-0.6B). Without one, a tiny untrained model is made on the
spot, so that the script runs offline in seconds; it writes noise and calls no tool, which the diagnosis then says.
"""

from __future__ import annotations

import sys
import tempfile

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from trimtab.adapters.trl import watch
from trimtab.lab.database import World
from trimtab.lab.tasks import TaskMix
from trimtab.lab.tool_environment import LabEnvironment, environment_reward


def tiny_chat_model(folder: str) -> str:
    """An untrained two-layer Llama with a byte tokenizer and Qwen3's chat template, saved to disk."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl.chat_template_utils import qwen3_chat_template

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.add_tokens(
        ["<|im_start|>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
    )
    tokenizer.chat_template = qwen3_chat_template
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=4096, tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else tiny_chat_model(tempfile.mkdtemp())
    tasks = TaskMix(World(seed=0), seed=0)
    rows = [{"prompt": [{"role": "user", "content": tasks.prompt(step, 0)}]} for step in range(32)]
    trainer = GRPOTrainer(
        model,
        environment_reward,
        args=GRPOConfig(
            output_dir="out/trl_environment",
            max_steps=3,
            max_completion_length=32,
            logging_steps=1,
            report_to=[],
            use_cpu=not torch.cuda.is_available(),
            bf16=torch.cuda.is_available(),
        ),
        train_dataset=Dataset.from_list(rows),
        environment_factory=LabEnvironment,
    )
    watch(trainer, "runs/trl_environment")  # the added line
    trainer.train()
    print("trimtab diagnose runs/trl_environment")


if __name__ == "__main__":
    main()
