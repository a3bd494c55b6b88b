"""Tiny models, a rollout that never varies, and one step of a trainer whose gradients are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import LlamaForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from tests.adapters.tiny_trl import make_tokenizer, text_rows
from trimtab.training import MiniRLConfig, MiniRLTrainer

COMMON: dict[str, Any] = {
    "per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 12, "max_steps": 3, "logging_steps": 1,
    "report_to": [], "use_cpu": True, "bf16": False, "save_strategy": "no", "learning_rate": 0.02, "disable_tqdm": True,
    "seed": 1, "optim": "sgd", "lr_scheduler_type": "constant", "max_grad_norm": 0.0, "gradient_checkpointing": False,
    "shuffle_dataset": False,
}  # fmt: skip


def moe(folder: Path, **changes: Any) -> str:
    """A Qwen3-MoE of three layers whose routing differs between tokens."""
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    settings: dict[str, Any] = {
        "vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 32, "moe_intermediate_size": 16, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "num_experts": 8, "num_experts_per_tok": 2,
        "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "max_position_embeddings": 512,
        "initializer_range": 0.2, "bos_token_id": None, "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id, "router_aux_loss_coef": 0.0, "tie_word_embeddings": False,
    }  # fmt: skip
    Qwen3MoeForCausalLM(Qwen3MoeConfig(**{**settings, **changes})).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def fixed_rollout(tools: bool = False, shift: float = 0.3, path: str | None = None) -> Any:
    """Completions that depend on the place in the batch alone; logprobs are those of `path`'s weights plus noise of `shift`."""
    tokenizer = make_tokenizer()
    model = None if path is None else LlamaForCausalLM.from_pretrained(path).eval()

    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        del trainer
        out: dict[str, Any] = {"prompt_ids": [], "completion_ids": [], "logprobs": [], "env_mask": []}
        for i, prompt in enumerate(prompts):
            generator = torch.Generator().manual_seed(sum(map(ord, prompt)) + 7 * i)
            prompt_ids = tokenizer(prompt)["input_ids"]
            length = int(torch.randint(5, 11, (), generator=generator))
            ids = [*torch.randint(0, 250, (length,), generator=generator).tolist(), tokenizer.eos_token_id]
            noise = shift * torch.randn(len(ids), generator=generator)
            logs = torch.full((len(ids),), -5.0) if model is None else score(model, prompt_ids, ids)
            mask = [0 if tools and i % 2 and 2 <= t < 4 else 1 for t in range(len(ids))]
            out["prompt_ids"].append(prompt_ids)
            out["completion_ids"].append(ids)
            out["logprobs"].append((logs + noise).tolist())
            out["env_mask"].append(mask)
        return out

    return rollout


@torch.no_grad()
def score(model: Any, prompt: list[int], completion: list[int]) -> torch.Tensor:
    logits = model(torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1).gather(-1, torch.tensor(completion)[:, None])[:, 0]


def by_length(completions: list[str], **_: Any) -> list[float]:
    """Differs within a group and depends on the text alone."""
    return [float(len(text) % 5) + 0.1 * (i % 4) for i, text in enumerate(completions)]


class Gradients(TrainerCallback):
    """Gradients of each optimizer step, by parameter."""

    def __init__(self) -> None:
        self.steps: list[dict[str, torch.Tensor]] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        named = model.named_parameters()
        self.steps.append({n: p.grad.clone() for n, p in named if p.grad is not None})


def build(
    kind: type, model: Any, folder: Path, *, rollout: Any = None, callbacks: Any = (), **settings: Any
) -> Any:
    """A GRPOTrainer or a MiniRLTrainer with the same arguments but the settings."""
    extra = {
        name: settings.pop(name)
        for name in ("peft_config", "eval_dataset", "optimizers", "reward_funcs")
        if name in settings
    }
    config: Any = MiniRLConfig if issubclass(kind, MiniRLTrainer) else GRPOConfig
    args = config(**{**COMMON, "output_dir": str(folder / "out"), **settings})
    rewards = extra.pop("reward_funcs", by_length)
    return kind(
        model, rewards, args=args, train_dataset=text_rows(64), processing_class=make_tokenizer(), rollout_func=rollout,
        callbacks=list(callbacks), **extra,
    )  # fmt: skip


def plain(*arguments: Any, **named: Any) -> Any:
    return build(GRPOTrainer, *arguments, **named)


def ours(*arguments: Any, **named: Any) -> Any:
    return build(MiniRLTrainer, *arguments, **named)


def trained(make: Any, *arguments: Any, **named: Any) -> tuple[list[dict[str, torch.Tensor]], Any]:
    """Gradients of every step, and the trainer after training."""
    keep = Gradients()
    trainer = make(*arguments, callbacks=[keep], **named)
    trainer.train()
    return keep.steps, trainer


def assert_same(
    one: list[dict[str, torch.Tensor]], two: list[dict[str, torch.Tensor]], **tolerance: Any
) -> None:
    assert len(one) == len(two) > 0
    for step, other in zip(one, two, strict=True):
        assert step.keys() == other.keys()
        assert any(float(grad.abs().max()) > 1e-5 for grad in step.values())
        for name, grad in step.items():
            torch.testing.assert_close(grad, other[name], **{"rtol": 1e-4, "atol": 1e-7, **tolerance})


class Spy:
    """What `_compute_loss` saw and gave in each training micro-batch: (inputs, log-probabilities, loss)."""

    def __init__(self, trainer: Any) -> None:
        self.seen: list[tuple[dict[str, Any], torch.Tensor, torch.Tensor]] = []
        self._policy: Any = None
        self._loss, self._score = trainer._compute_loss, trainer._get_per_token_logps_and_entropies
        trainer._compute_loss, trainer._get_per_token_logps_and_entropies = self.loss, self.score

    def loss(self, model: Any, inputs: Any) -> Any:
        value = self._loss(model, inputs)
        if self._policy is not None:
            self.seen.append((dict(inputs), self._policy.detach(), value.detach()))
        self._policy = None
        return value

    def score(self, *args: Any, **kwargs: Any) -> Any:
        result = self._score(*args, **kwargs)
        if torch.is_grad_enabled():
            self._policy = result[0]
        return result


def loss_mask(inputs: dict[str, Any]) -> torch.Tensor:
    return (inputs["completion_mask"] * inputs.get("tool_mask", 1)).bool()


def post_tool(inputs: dict[str, Any]) -> torch.Tensor:
    tool = (inputs["tool_mask"] == 0) & inputs["completion_mask"].bool()
    return (tool.cumsum(1) > 0) & loss_mask(inputs)
