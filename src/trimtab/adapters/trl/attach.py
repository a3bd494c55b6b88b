"""The one line: `watch(trainer, folder)`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import transformers
import trl

from trimtab.adapters.trl.callback import StepCloser
from trimtab.adapters.trl.dpo import DpoCapture
from trimtab.adapters.trl.grpo import GrpoCapture
from trimtab.adapters.trl.kto import KtoCapture
from trimtab.errors import UnsupportedError
from trimtab.monitor import Run, open_run


def watch(
    trainer: Any,
    folder: str | os.PathLike[str],
    *,
    reference: Literal["auto", "off"] = "auto",
    reference_rows: float = 0.25,
    reference_every: int = 1,
    probes: Literal["auto", "off"] | Mapping[str, Any] = "auto",
    probe_every: int = 10,
    tool_names: Sequence[str] = (),
    retokenise_every: int = 10,
    log_readings: bool = True,
    strict: bool = False,
    **open_with: Any,
) -> Run:
    """Watch any TRL trainer; the run is written to `folder` and followed with `trimtab watch`, `diagnose`, `report`.

    For GRPO trainers (with `tools=`, `environment_factory=` or `rollout_func=`) every training token is captured. Drift
    needs a reference: the trainer's own (beta != 0), else the base model of a PEFT adapter, else trimtab's own copy of
    the weights as they are now, scored on a random share `reference_rows` of the sequences every `reference_every`
    steps; its time is booked apart. "off" leaves drift unobserved. `probes`: transcripts scored every `probe_every`
    steps; "auto" keeps the first ones with a tool result. Other trainers: step metrics, and log-probabilities of chosen
    and rejected tokens for DPO. `log_readings` adds readings to `trainer.log`, so they reach W&B or TensorBoard.

    A rollout_func may return `tool_names`, for each sample the tools in the order of their results. The argument
    `tool_names` declares the tools that get a slice of their own (at most 16, others are `other`); without it they are
    the trainer's tools, or for a rollout_func the first 16 names seen.

    `retokenise_every`: steps between comparisons of sampled ids with those of their re-encoded text, of four sequences;
    0 for never. `open_with` goes to `trimtab.open_run`, as `rules`, `required_tools` or `key_arguments`.

    Call it after the trainer is built and before `train()`. Under accelerate every rank calls it and writes its shard.
    Raises UnsupportedError for an object that is not a Hugging Face trainer, RunError for an unusable folder.
    """
    if not isinstance(trainer, transformers.Trainer):
        raise UnsupportedError(f"watch needs a transformers or TRL trainer, got {type(trainer).__name__}")
    if hasattr(trainer, "trimtab_run"):
        raise UnsupportedError(f"this trainer is already watched, in {trainer.trimtab_run.writer.folder}")
    if isinstance(trainer, trl.GRPOTrainer) and getattr(trainer.args, "use_liger_kernel", False):
        raise UnsupportedError(
            "use_liger_kernel computes the loss without per-token log-probabilities: switch it off to watch"
        )
    config = {
        "trainer": type(trainer).__name__,
        "trl": trl.__version__,
        "transformers": transformers.__version__,
        "ranks": trainer.accelerator.num_processes,
    }
    open_with.setdefault("token_text", _decoder(trainer))
    if isinstance(trainer, trl.GRPOTrainer):
        open_with.setdefault("groups_span_steps", True)  # the adapter numbers groups once and for all
    run = open_run(folder, rank=trainer.accelerator.process_index, config=config, strict=strict, **open_with)
    capture: Any = None
    if isinstance(trainer, trl.GRPOTrainer):
        capture = GrpoCapture(
            trainer,
            run,
            reference,
            reference_rows,
            reference_every,
            probes,
            probe_every,
            tool_names,
            retokenise_every,
        )
    elif isinstance(trainer, trl.DPOTrainer):
        capture = DpoCapture(trainer, run)
    elif isinstance(trainer, trl.KTOTrainer):
        capture = KtoCapture(trainer, run)
    StepCloser(trainer, run, capture, log_readings)
    trainer.trimtab_run = run
    return run


def _decoder(trainer: Any) -> Callable[[int], str] | None:
    """The text of one token id, where the trainer has a tokenizer."""
    processor = getattr(trainer, "processing_class", None)
    tokenizer = getattr(processor, "tokenizer", processor)
    decode = getattr(tokenizer, "decode", None)
    return None if decode is None else lambda token: str(decode([token]))
