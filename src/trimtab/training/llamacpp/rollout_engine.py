"""llama.cpp as the second engine: kernels, rounding and cache of its own, on a GGUF export renewed after each
optimizer step.

    trainer = MiniRLTrainer(..., rollout_func=LlamaCppEngine("q8_0", max_new_tokens=64))

B rows, V words. Needs `pip install 'trimtab[llama]'` (llama.cpp is compiled on the way).
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trimtab.errors import ObjectiveError, UnsupportedError
from trimtab.training.inference_engines import prompt_tokens
from trimtab.training.llamacpp.context import CACHES, Context, Loaded, library
from trimtab.training.llamacpp.gguf_export import FORMATS, export_gguf, need_gguf
from trimtab.training.llamacpp.sampling import Sampling

_ROWS = 32  # sequences of one context; more are sampled one context after another


class LlamaCppEngine:
    """`rollout_func=LlamaCppEngine("f16", max_new_tokens=64)`: samples a completion for each prompt in
    llama.cpp, on the CPU.

    `weights`: f32, f16, bf16 or q8_0; llama.cpp rounds the other factor of each product likewise (q8_0: to 8
    bits). `cache`: how keys and values are kept, f16 (llama.cpp's default) or f32. The file is written and
    loaded at the first call and whenever an optimizer step has passed. Prompts are text or messages,
    tokenised by the trainer's tokenizer. temperature, top_p, top_k, min_p and repetition_penalty are those of
    trainer.args, and mu is the distribution they leave of llama.cpp's logits. Draws come from torch's
    generator. Raises UnsupportedError at construction for other formats and without llama_cpp or gguf, and at
    the first rollout for adapters and what `export_gguf` refuses; ObjectiveError for an empty prompt. It
    returns no routes.
    """

    def __init__(
        self, weights: str = "f16", *, max_new_tokens: int, cache: str = "f16", threads: int = 1
    ) -> None:
        if weights not in FORMATS or cache not in CACHES:
            raise UnsupportedError(
                f"LlamaCppEngine keeps weights in {', '.join(FORMATS)} and its cache in "
                f"{' or '.join(CACHES)}; got {weights!r}, {cache!r}"
            )
        library()
        need_gguf()
        self.weights, self.cache, self.threads = weights, cache, threads
        self.max_new_tokens = max_new_tokens
        self._folder = tempfile.TemporaryDirectory(prefix="trimtab-gguf-")
        self._loaded: Loaded | None = None
        self._step = -1

    @property
    def path(self) -> Path:
        """The exported file; gone with the engine."""
        return Path(self._folder.name) / "policy.gguf"

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        self.synchronise(trainer)
        tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
        ids = [prompt_tokens(prompt, tokenizer, trainer) for prompt in prompts]
        sampling = Sampling.of(trainer.args)
        completions: list[list[int]] = []
        logprobs: list[list[float]] = []
        for start in range(0, len(ids), _ROWS):
            own = self.sample(ids[start : start + _ROWS], sampling, end=tokenizer.eos_token_id)
            completions += own[0]
            logprobs += own[1]
        return {"prompt_ids": ids, "completion_ids": completions, "logprobs": logprobs}

    def synchronise(self, trainer: Any) -> None:
        """Export and load the trainer's weights of now, once an optimizer step."""
        if self._loaded is not None and self._step == trainer.state.global_step:
            return
        source = trainer.accelerator.unwrap_model(trainer.model)
        if hasattr(source, "peft_config"):
            raise UnsupportedError(
                "LlamaCppEngine exports whole weights: merge the adapter, or train without one"
            )
        self.close()
        export_gguf(source, self.path, self.weights)
        self._loaded = Loaded(self.path, int(source.config.vocab_size))
        self._step = int(trainer.state.global_step)

    def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, end: int | None
    ) -> tuple[list[list[int]], list[list[float]]]:
        """(token ids, log mu of each in nats) of a completion for each prompt; a row stops after `end` or
        max_new_tokens.
        """
        if not prompts:
            return [], []
        if not all(map(len, prompts)):
            raise ObjectiveError(f"prompt {[*map(len, prompts)].index(0)} has no tokens to continue")
        written: list[list[int]] = [[] for _ in prompts]
        logs: list[list[float]] = [[] for _ in prompts]
        pieces = [(row, list(prompt), 0) for row, prompt in enumerate(prompts)]
        with self._context([len(prompt) + self.max_new_tokens for prompt in prompts]) as context:
            for _ in range(self.max_new_tokens):
                shown = torch.from_numpy(context.logits(pieces))
                before = [[*prompts[row], *written[row]] for row, _, _ in pieces]
                known = sampling.log_probabilities(before, shown)
                drawn = torch.multinomial(known.exp(), 1)[:, 0].tolist()
                following = []
                for index, ((row, fed, position), token) in enumerate(zip(pieces, drawn, strict=True)):
                    written[row].append(token)
                    logs[row].append(float(known[index, token]))
                    if token != end:
                        following.append((row, [token], position + len(fed)))
                pieces = following
                if not pieces:
                    break
        return written, logs

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        """(T, V) float32: llama.cpp's logits after each of the T tokens, unprocessed, with the weights of the
        last `synchronise`.
        """
        with self._context([len(ids)]) as context:
            return context.logits([(0, list(ids), 0)], every=True)

    def close(self) -> None:
        """Give llama.cpp's memory back; the next call loads anew."""
        if self._loaded is not None:
            self._loaded.close()
        self._loaded = None

    def _context(self, lengths: Sequence[int]) -> Context:
        if self._loaded is None:
            raise ObjectiveError("LlamaCppEngine has no weights yet: synchronise(trainer) first")
        return Context(self._loaded, lengths, self.cache, self.threads)
