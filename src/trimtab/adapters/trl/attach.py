"""`watch(trainer, folder)`: the one line that attaches trimtab to a TRL trainer."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import transformers
import trl

from trimtab.adapters.snapshots import SnapshotOptions
from trimtab.adapters.snapshots.snapshot_callback import SnapshotCallback
from trimtab.adapters.trl.callback import StepCloser
from trimtab.adapters.trl.grpo import CaptureOptions, GrpoCapture
from trimtab.adapters.trl.guard_session import GuardSession
from trimtab.adapters.trl.metrics_only import MetricsCapture
from trimtab.adapters.trl.phase_timer import PhaseTimer
from trimtab.adapters.trl.preference_trainers import DpoCapture, KtoCapture
from trimtab.adapters.trl.reference import sharded_by
from trimtab.errors import UnsupportedError
from trimtab.guard import GuardOptions
from trimtab.monitor import Run, open_run
from trimtab.monitor.run_identity import trainer_identity


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
    update_rows: float = 0.125,
    log_readings: bool = True,
    guard: str | os.PathLike[str] | GuardOptions | None = None,
    snapshots: int | SnapshotOptions | None = None,
    strict: bool = False,
    **open_with: Any,
) -> Run:
    """Watch any TRL trainer and write the run to `folder`.

    `trimtab watch`, `trimtab diagnose` and `trimtab report` read that folder. Call it after the trainer is
    built and before `train()`. Under accelerate every rank calls it and writes its shard. For GRPO trainers
    (with `tools=`, `environment_factory=` or `rollout_func=`) every training token is captured. For DPO, the
    log-probabilities of chosen and rejected tokens. For other trainers, step metrics.

    Args:
        trainer: transformers or TRL trainer. It gets the attribute `trimtab_run`.
        folder: Run folder; created if it is missing.
        reference: Policy that drift is measured against. "auto": the trainer's own (beta != 0), else the base
            model of a PEFT adapter, else a copy of the weights as they are now. "off": drift is not observed.
        reference_rows: Fraction in [0, 1] of the sequences that the copy or the base model scores, drawn at
            random. The time it takes is booked apart.
        reference_every: Optimizer steps between scored steps.
        probes: Transcripts scored again and again. "auto" takes the first ones with a tool result; a mapping
            gives integer arrays (B, .) by TRL's names (prompt_ids, prompt_mask, completion_ids,
            completion_mask, tool_mask).
        probe_every: Steps between two scorings of the probes.
        tool_names: Tools that get a slice of their own, at most 16; others are `other`. Empty: the trainer's
            tools, or for a rollout_func the first 16 names seen. A rollout_func may return `tool_names`, for
            each sample the tools in the order of their results, and `policy_version`, for each sample the
            optimizer steps that the sampling weights had seen: then the age of rollouts is watched too.
        retokenise_every: Steps between comparisons of sampled ids with those of their re-encoded text, of
            four sequences; 0 for never.
        update_rows: Fraction in [0, 1] of a step's sequences that are scored again after its update, drawn
            at random; 0 for none. The time it takes is booked apart.
        log_readings: Add readings to `trainer.log`, so that they reach W&B or TensorBoard.
        guard: What is done about trouble: "observe" (nothing, and it is recorded what would be),
            "recommended", "strict", or the path of a policy file (docs/how-to/guard.md). It acts on GRPO
            trainers; states to go back to are kept in `folder`/stable_states. None: no guard.
        snapshots: Behaviour on fixed prompts every so many steps, or `SnapshotOptions` (docs/how-
        to/snapshots.md).
            None: no snapshots.
        strict: Raise errors of trimtab instead of recording them.
        **open_with: Arguments of `trimtab.open_run`, such as `rules`, `required_tools` or `key_arguments`.

    Returns:
        The open run. It stays open for a second `train()`.

    Raises:
        UnsupportedError: `trainer` is not a Hugging Face trainer, is watched already, or uses the Liger loss;
            or a guard is to act on another trainer than GRPO's; or snapshots are asked for and there are no
            prompts, or the weights are split over ranks.
        RunError: `folder` cannot be used, or the stable states do not fit its disk.
        GuardError: `guard` is malformed.

    Example:
        >>> run = watch(trainer, "runs/exp1", reference_rows=0.25)  # doctest: +SKIP
        >>> trainer.train()  # doctest: +SKIP
    """
    if not isinstance(trainer, transformers.Trainer):
        raise UnsupportedError(f"watch needs a transformers or TRL trainer, got {type(trainer).__name__}")
    if hasattr(trainer, "trimtab_run"):
        raise UnsupportedError(f"this trainer is already watched, in {trainer.trimtab_run.writer.folder}")
    if isinstance(trainer, trl.GRPOTrainer) and getattr(trainer.args, "use_liger_kernel", False):
        raise UnsupportedError(
            "use_liger_kernel computes the loss without per-token log-probabilities: switch it off to watch"
        )
    if snapshots is not None and (kind := sharded_by(trainer)):
        raise UnsupportedError(
            f"snapshots need all weights on one rank, and {kind} splits them: leave snapshots out"
        )
    config = {
        "trainer": type(trainer).__name__,
        "trl": trl.__version__,
        "transformers": transformers.__version__,
        "ranks": trainer.accelerator.num_processes,
        "identity": trainer_identity(trainer),
    }
    open_with.setdefault("token_text", _decoder(trainer))
    if isinstance(trainer, trl.GRPOTrainer):
        open_with.setdefault("groups_span_steps", True)  # the adapter numbers groups once and for all
    session = None if guard is None else GuardSession(trainer, guard)
    if session is not None:
        open_with.update(session.arguments())
    run = open_run(folder, rank=trainer.accelerator.process_index, config=config, strict=strict, **open_with)
    if session is not None:
        session.attach(run)
    PhaseTimer(trainer, run)
    capture: Any = None
    if isinstance(trainer, trl.GRPOTrainer):
        columns = CaptureOptions(
            reference,
            reference_rows,
            reference_every,
            probes,
            probe_every,
            tuple(tool_names),
            retokenise_every,
            update_rows,
        )
        capture = GrpoCapture(trainer, run, columns)
    elif isinstance(trainer, trl.DPOTrainer):
        capture = DpoCapture(trainer, run)
    elif isinstance(trainer, trl.KTOTrainer):
        capture = KtoCapture(trainer, run)
    else:
        capture = MetricsCapture(trainer)
    StepCloser(trainer, run, capture, log_readings)
    if snapshots is not None:
        options = snapshots if isinstance(snapshots, SnapshotOptions) else SnapshotOptions(every=snapshots)
        trainer.add_callback(SnapshotCallback(trainer, run, options))
    trainer.trimtab_run = run
    return run


def _decoder(trainer: Any) -> Callable[[int], str] | None:
    """Return a function from one token id to its text, where the trainer has a tokenizer."""
    processor = getattr(trainer, "processing_class", None)
    tokenizer = getattr(processor, "tokenizer", processor)
    decode = getattr(tokenizer, "decode", None)
    return None if decode is None else lambda token: str(decode([token]))
