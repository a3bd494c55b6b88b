"""A GRPO script turned into MiniRL with routing replay: the import and the numbers of the config changed, nothing else.

    python examples/minirl.py [MODEL]

MODEL is any causal language model of one GPU (say Qwen/Qwen3-0.6B); transformers' own loop then samples, and its log-probabilities are
recorded. Without one, a tiny untrained mixture of experts is made on the spot and sampled by a second engine with fp8 weights, so that
the script runs offline in seconds and the mismatch, the weights and the replayed experts are real.
"""

from __future__ import annotations

import sys
import tempfile

import torch
from datasets import Dataset

from trimtab.training import MiniRLConfig as GRPOConfig  # instead of: from trl import GRPOConfig, GRPOTrainer
from trimtab.training import MiniRLTrainer as GRPOTrainer
from trimtab.training.inference_engines import RoundedEngine


def tiny_mixture(folder: str) -> str:
    """An untrained two-layer Qwen3-MoE of 8 experts with a byte tokenizer, saved to disk."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3MoeConfig, Qwen3MoeForCausalLM

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|end|>", pad_token="<|pad|>")
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=32, moe_intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, head_dim=16, num_experts=8, num_experts_per_tok=2, norm_topk_prob=True,
        mlp_only_layers=[], initializer_range=0.2, bos_token_id=None, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    Qwen3MoeForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def digits(completions: list[str], **_: object) -> list[float]:
    """Reward: the share of the text that is digits."""
    return [sum(map(str.isdigit, text)) / max(len(text), 1) for text in completions]


def main() -> None:
    own = len(sys.argv) < 2
    model = tiny_mixture(tempfile.mkdtemp()) if own else sys.argv[1]
    trainer = GRPOTrainer(
        model,
        digits,
        args=GRPOConfig(
            output_dir="out/minirl", max_steps=4, num_iterations=2, num_generations=4, per_device_train_batch_size=4,
            max_completion_length=24, logging_steps=1, report_to=[], save_strategy="no", use_cpu=not torch.cuda.is_available(),
            bf16=torch.cuda.is_available(),
            routing_replay="R3" if own else "off", routing_compare=own,  # a mixture of experts; R3 also works without the engine
            drop_nonfinite=True, k3_bound=0.05,  # tokens and rows the trainer cannot vouch for are dropped and counted
        ),
        train_dataset=Dataset.from_list([{"prompt": f"{i} + {i} = "} for i in range(32)]),
        rollout_func=RoundedEngine("fp8", max_new_tokens=24) if own else None,
    )  # fmt: skip
    trainer.train()
    for row in trainer.state.log_history[:-1]:
        shown = (
            "trimtab/mismatch/k3_mean",
            "trimtab/correction/dropped_frac",
            "clip_ratio/region_mean",
            "routing/changed_frac",
        )
        print(row["step"], " ".join(f"{name}={row[name]:.4f}" for name in shown if name in row))


if __name__ == "__main__":
    main()
