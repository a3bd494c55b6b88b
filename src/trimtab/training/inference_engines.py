"""A second inference engine on one machine: a copy of the policy with rounded weights that samples, says its
log-probabilities and routes.

It gives TRL runs an honest train-inference mismatch without a GPU: pi_old is the trainer's float32, mu the
rounded copy. Give it as the `rollout_func` of a GRPOTrainer or MiniRLTrainer. B rows, L layers, K experts a
token.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from transformers import AutoModelForCausalLM, GenerationConfig

from trimtab.errors import ObjectiveError, UnsupportedError
from trimtab.objectives import RoutingReplay
from trimtab.training.minirl.sampling_recorder import OwnRollout

Format = Literal["float32", "bf16", "fp8", "int8"]
_FORMATS = ("float32", "bf16", "fp8", "int8")
_FP8_MAX = 448.0  # the largest float8_e4m3fn


def rounded(weight: torch.Tensor, to: Format) -> torch.Tensor:
    """The weight as the format holds it, in its own dtype again: fp8-e4m3 and int8 with one scale an output
    row, bf16 as it is.

    Rows are the first axis; for the 3-D experts of a mixture, rows of each expert. Vectors (norms, biases)
    stay: engines keep them wide.

    >>> rounded(torch.tensor([[1.0, 0.5, 0.301]]), "int8")  # steps of 1/127
    tensor([[1.0000, 0.5039, 0.2992]])
    """
    if to == "float32" or weight.dim() < 2:
        return weight
    if to == "bf16":
        return weight.to(torch.bfloat16).to(weight.dtype)
    largest = weight.abs().amax(dim=-1, keepdim=True).clamp(min=torch.finfo(weight.dtype).tiny)
    if to == "fp8":
        scale = largest / _FP8_MAX
        return (weight / scale).to(torch.float8_e4m3fn).to(weight.dtype) * scale
    if to == "int8":
        scale = largest / 127
        return (weight / scale).round().clamp(-127, 127) * scale
    raise UnsupportedError(_refusal(to))


class RoundedEngine:
    """`rollout_func=RoundedEngine("fp8", max_new_tokens=64)`: samples a completion for each prompt from the
    rounded copy.

    The copy is made at the first call and takes the trainer's weights whenever an optimizer step has passed.
    `compute`: dtype of the copy's arithmetic. Prompts are text or messages. temperature, top_p, top_k, min_p
    and repetition_penalty are those of trainer.args, and mu is the distribution they leave. Its result has
    `routes` for a mixture of experts that routing replay knows. Raises UnsupportedError at construction for
    other formats, and at the first rollout for an adapter (merge it first), ObjectiveError for a
    `temperature` that is not the trainer's.
    """

    def __init__(
        self,
        weights: Format = "bf16",
        *,
        max_new_tokens: int,
        temperature: float | None = None,
        compute: torch.dtype = torch.float32,
        routes: bool = True,
    ) -> None:
        if weights not in _FORMATS:
            raise UnsupportedError(_refusal(weights))
        self.weights, self.compute, self.routes = weights, compute, routes
        self.max_new_tokens, self.temperature = max_new_tokens, temperature
        self.model: Any = None
        self.replay: RoutingReplay | None = None
        self._step = -1

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        self.synchronise(trainer)
        tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
        ids = [prompt_tokens(prompt, tokenizer, trainer) for prompt in prompts]
        width = max(map(len, ids))
        padded = torch.tensor([[tokenizer.pad_token_id] * (width - len(row)) + row for row in ids])
        attended = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in ids])
        own = trainer.args
        if self.temperature not in (None, own.temperature):
            raise ObjectiveError(
                f"RoundedEngine samples at temperature={self.temperature:g}, the trainer scores at "
                f"{own.temperature:g}: leave it out here, the trainer's is taken"
            )
        names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
        sampling = {name: getattr(own, name) for name in names}
        sampling |= {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
        sampling |= {"do_sample": True, "max_new_tokens": self.max_new_tokens, "disable_compile": True}
        config = GenerationConfig(**sampling)
        device = trainer.accelerator.device
        rollout = OwnRollout(self.replay)
        with torch.no_grad(), rollout.turn(self.model) as turn:
            written = self.model.generate(
                input_ids=padded.to(device), attention_mask=attended.to(device), generation_config=config
            )[:, width:].tolist()
        completions = [_until(row, tokenizer.eos_token_id) for row in written]
        result = {"prompt_ids": ids, "completion_ids": completions, "logprobs": turn.finish(ids, completions)}
        return {**result, "routes": rollout.routes} if self.replay is not None else result

    @torch.no_grad()
    def synchronise(self, trainer: Any) -> None:
        """Round the trainer's weights of now into the copy, once an optimizer step."""
        source = trainer.accelerator.unwrap_model(trainer.model)
        if hasattr(source, "peft_config"):
            raise UnsupportedError(
                "RoundedEngine copies whole weights: merge the adapter, or train without one"
            )
        if self.model is None:  # a deep copy would keep forwards that TRL bound to the original
            self.model = (
                AutoModelForCausalLM.from_config(source.config).to(source.device, self.compute).eval()
            )
            self.replay = self._replay()
        elif self._step == trainer.state.global_step:
            return
        self._step = int(trainer.state.global_step)
        own = dict(self.model.named_parameters())
        for name, parameter in source.named_parameters():
            own[name].copy_(rounded(parameter.detach().float(), self.weights))

    def _replay(self) -> RoutingReplay | None:
        if not self.routes:
            return None
        try:
            return RoutingReplay(self.model)
        except UnsupportedError:
            return None  # a dense model: R3 asks for `routes` and names their absence


def _refusal(weights: str) -> str:
    return (
        f"weights are kept in {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}, not in {weights!r}; GGUF "
        "formats are LlamaCppEngine's (trimtab.training.llamacpp)"
    )


def prompt_tokens(prompt: Any, tokenizer: Any, trainer: Any) -> list[int]:
    """Of a text, or of a conversation through the chat template as TRL applies it."""
    if isinstance(prompt, str):
        return list(tokenizer(prompt)["input_ids"])
    text = tokenizer.apply_chat_template(
        prompt, tokenize=False, add_generation_prompt=True,
        chat_template=getattr(trainer, "chat_template", None),
        **(getattr(trainer, "chat_template_kwargs", None) or {}),
    )  # fmt: skip
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _until(row: list[int], end: int) -> list[int]:
    return row[: row.index(end) + 1] if end in row else row
