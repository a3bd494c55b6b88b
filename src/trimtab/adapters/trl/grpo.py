"""Capture from a GRPOTrainer: the columns of each token, with a row id that survives TRL's shuffle.

Wraps `_generate_and_score_completions` (rewards, groups, stop reasons, row ids), `_compute_loss` (the batch)
and `_get_per_token_logps_and_entropies` (the policy's log-probabilities inside it). Nothing here changes what
they return, apart from one key added to the batch, `trimtab_row`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from trimtab.adapters.trl.batch_arrays import batch_arrays, clip_range_of, row_arrays, version_arrays
from trimtab.adapters.trl.probe_scorer import ProbeScorer
from trimtab.adapters.trl.reference import RowSampler, make_reference
from trimtab.adapters.trl.sharded_scoring import ScoringAgreement, Settled
from trimtab.adapters.trl.tool_recorder import ToolRecorder
from trimtab.adapters.trl.update_scorer import UpdateScorer
from trimtab.capture.segments import MAX_NAMES
from trimtab.monitor import Run

ROW_KEY = "trimtab_row"
_CHECKED_ROWS, _CHECKED_TOKENS = 4, 512
_IMAGE_KEYS = ("pixel_values", "image_grid_thw", "token_type_ids", "mm_token_type_ids")


@dataclass
class Generation:
    """What is known of the completions of one generation (B of this rank) before TRL shuffles them.

    `first` is the row id of the first; the arrays are in the order of row ids.
    """

    first: int
    episode_id: np.ndarray
    group: np.ndarray
    reward: np.ndarray
    parts: dict[str, np.ndarray]
    stop_reason: list[str]
    tools: list[list[str]]
    versions: np.ndarray | None
    """Updates the sampling weights had seen, a completion each; None where the rollout_func does not say."""


@dataclass(frozen=True)
class CaptureOptions:
    """Settings of a GrpoCapture; `trimtab.adapters.trl.watch` documents each."""

    reference: str
    reference_rows: float
    reference_every: int
    probes: Any
    probe_every: int
    tool_names: tuple[str, ...]
    retokenise_every: int
    update_rows: float


class GrpoCapture:
    """Collects the micro-batches of a step on the device; `close_step` copies and observes them."""

    def __init__(self, trainer: Any, run: Run, options: CaptureOptions) -> None:
        self.trainer, self.run, self.every = trainer, run, options.reference_every
        self.reference = make_reference(trainer, options.reference)
        self.probes = ProbeScorer(run, options.probes, options.probe_every)
        self.retokenization = RetokenizationCheck(trainer, run, options.retokenise_every)
        self.updates = UpdateScorer(trainer, run, options.update_rows)
        self.sampler = RowSampler(options.reference_rows, trainer.args.seed)
        self.generations: list[Generation] = []
        self.table = list(options.tool_names)
        self.declared = bool(options.tool_names)
        self.pending: list[dict[str, Any]] = []
        self.losses: list[torch.Tensor] = []
        self.next_row = 0
        self._rewards: np.ndarray | None = None
        self._policy: Any = None
        self._in_loss = False
        self.tools = ToolRecorder(trainer, run)
        self.agreement, self.settled = ScoringAgreement(trainer), Settled(False, 0, 0)
        for name, wrapper in (
            ("_calculate_rewards", self._calculate_rewards),
            ("_generate_and_score_completions", self._generate),
            ("_compute_loss", self._compute_loss),
            ("_get_per_token_logps_and_entropies", self._logps),
        ):
            setattr(self, f"_inner{name}", getattr(trainer, name))
            setattr(trainer, name, wrapper)

    def _calculate_rewards(self, inputs: Any, prompts: Any, *args: Any, **kwargs: Any) -> Any:
        rewards = self._inner_calculate_rewards(inputs, prompts, *args, **kwargs)  # type: ignore[attr-defined]
        with self.run.isolated("read rewards"):
            first = self.trainer.accelerator.process_index * len(prompts)
            self._rewards = rewards[first : first + len(prompts)].detach().double().cpu().numpy()
        return rewards

    def _generate(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        self.tools.names = []
        batch = self._inner_generate_and_score_completions(inputs, *args, **kwargs)  # type: ignore[attr-defined]
        if self.trainer.model.training:
            with self.run.isolated("read generation"):
                self._add_rows(inputs, batch)
        return batch

    def _compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.trainer.model.training:
            return self._inner_compute_loss(model, inputs, *args, **kwargs)  # type: ignore[attr-defined]
        self._policy, self._in_loss = None, True
        try:
            loss = self._inner_compute_loss(model, inputs, *args, **kwargs)  # type: ignore[attr-defined]
        finally:
            self._in_loss = False
        with self.run.isolated("keep batch"):
            if self._policy is None:
                raise RuntimeError(
                    "TRL's _compute_loss asked for no per-token log-probabilities: an unknown TRL version"
                )
            logps, entropies = self._policy
            self.pending.append({**inputs, "per_token_logps": logps, "entropies": entropies})
            self.losses.append(loss.detach())
        return loss

    def _logps(self, *args: Any, **kwargs: Any) -> Any:
        result = self._inner_get_per_token_logps_and_entropies(*args, **kwargs)  # type: ignore[attr-defined]
        if self._in_loss and self._policy is None:
            entropies = result[1]
            self._policy = (result[0].detach(), None if entropies is None else entropies.detach())
        return result

    def _add_rows(self, inputs: Any, batch: dict[str, Any]) -> None:
        """Give each completion of this rank a row id, and remember what the shuffle would scatter."""
        trainer, count = self.trainer, batch["completion_ids"].size(0)
        world, rank = trainer.accelerator.num_processes, trainer.accelerator.process_index
        names, weights = trainer.reward_func_names, trainer.reward_weights.double().cpu().numpy()
        rewards = self._rewards if self._rewards is not None else np.full((count, len(names)), np.nan)
        scored = ~np.isnan(rewards)
        total = np.where(scored.any(axis=1), np.where(scored, rewards * weights, 0.0).sum(axis=1), np.nan)
        keys = np.arange(self.next_row, self.next_row + count)
        tools = self.tools.names or [list(row.get("tool_names") or []) for row in inputs]
        self.generations = [
            *self.generations[-1:],
            Generation(
                first=self.next_row,
                episode_id=keys * world + rank,
                group=(self.next_row * world + rank * count + np.arange(count)) // trainer.num_generations,
                reward=total,
                parts={name: rewards[:, i] for i, name in enumerate(names)},
                stop_reason=_stop_reasons(batch, trainer),
                tools=tools,
                versions=_versions(inputs),
            ),
        ]
        batch[ROW_KEY] = torch.arange(
            self.next_row, self.next_row + count, device=batch["completion_ids"].device
        )
        self.next_row += count
        self._rewards = None

    def begin(self) -> None:
        """Copy the starting weights, where they could not be copied before."""
        self.reference.begin(self.trainer)

    def agree(self, step: int) -> None:
        """Settle with the other ranks what is scored of this step."""
        batches, probes, again = [0, 0, 0, 0], 0, 0
        with self.run.isolated("plan the scoring"):
            rows = [int(batch["completion_ids"].size(0)) for batch in self.pending]
            for batch in self.pending:
                self.probes.keep_first(batch)
            again = self.probes.rows_again(step)
            probes = self.probes.rows(step)
            batches = [len(rows), sum(rows), int(not self.reference.reason), int(not self.updates.reason)]
        self.settled = self.agreement.settle(batches, probes, again)

    def close_step(self, step: int) -> dict[str, float]:
        """Observe the step: score the reference on its sample, copy the columns to the host, score probes."""
        pending, losses = self.pending, self.losses
        self.pending, self.losses = [], []
        for batch in pending:
            with self.run.isolated("observe batch"):
                scored = self._score_reference(step, batch)
                generation, rows = self._rows_of(batch)
                columns = batch_arrays(batch, scored, self.reference.name, clip_range_of(self.trainer))
                known = row_arrays(generation, rows, self._tool_table(generation))
                if generation is not None and generation.versions is not None:
                    columns |= version_arrays(generation.versions[rows], columns, step)
                self.run.observe(**columns, **known)
                if self.settled.batches:
                    with self.run.isolated("score the update", cost="update"):
                        self.updates.score(batch, {**columns, **known})
            with self.run.isolated("encode again", cost="retokenise"):
                self.retokenization.compare(step, batch)
        with self.run.isolated("score probes", cost="probes"):
            if self.settled.update_rows:
                self.probes.score_update(self.trainer, self.settled.update_rows)
            if self.settled.probe_rows:
                self.run.probe(step, self.probes.score(self.trainer, step, self.settled.probe_rows))
        return {"loss": float(torch.stack(losses).sum())} if losses else {}

    def _rows_of(self, batch: Mapping[str, Any]) -> tuple[Generation | None, np.ndarray]:
        """Return the generation a micro-batch comes from, and the index of each of its rows there."""
        keys = batch[ROW_KEY].cpu().numpy() if ROW_KEY in batch else np.zeros(0, np.int64)
        for generation in reversed(self.generations):
            if keys.size and keys.min() >= generation.first:
                return generation, keys - generation.first
        return None, keys

    def _tool_table(self, generation: Generation | None) -> list[str]:
        """Return the tools with a slice of their own: declared, the trainer's, or the first 16 names seen."""
        if not self.declared:
            known = sorted(self.tools.known)
            self.declared = bool(known)
            new = known or [name for tools in (generation.tools if generation else []) for name in tools]
            self.table = list(dict.fromkeys([*self.table, *new]))[:MAX_NAMES]
        return self.table

    def absent(self) -> dict[str, str]:
        """Return the columns that this trainer does not give, with the reason."""
        reasons = {"drift": self.reference.reason, "update": self.updates.reason}
        return {name: why for name, why in reasons.items() if why}

    def _score_reference(self, step: int, batch: Mapping[str, Any]) -> tuple[Any, Any] | None:
        """Return log-probabilities (B, T) and scored rows (B,); None without a reference to score."""
        reference = self.reference
        if reference.in_batch or reference.reason:
            return None
        count, width = batch["completion_ids"].shape
        values, scored = np.zeros((count, width), np.float32), np.zeros(count, bool)
        if step % self.every or not self.settled.batches:
            return values, scored
        if any(batch.get(key) is not None for key in _IMAGE_KEYS):
            reference.reason = "batches with images are not scored by trimtab's reference: set beta > 0"
            return None
        with self.run.isolated("score reference", cost="reference"):
            rows = self.sampler.pick(count)
            if not rows.numel():
                return values, scored
            logps = reference.score(self.trainer, batch, rows.to(batch["completion_ids"].device))
            values[rows.numpy()], scored[rows.numpy()] = logps.float().cpu().numpy(), True
        return values, scored


def _versions(inputs: Any) -> np.ndarray | None:
    """Return `policy_version` of each row, where a rollout_func gave a whole number to every one."""
    versions = [row.get("policy_version") for row in inputs]
    whole = all(isinstance(version, (int, np.integer)) for version in versions)
    return np.array(versions, np.int64) if whole and versions else None


class RetokenizationCheck:
    """Compares sampled ids with those of their decoded and re-encoded text, every `every` steps (0: never).

    It reads the first turns of up to 4 sequences, at most 512 tokens of each. A first turn ends at the first
    tool result: the chat template put together what follows, not the model.
    """

    def __init__(self, trainer: Any, run: Run, every: int) -> None:
        self.run, self.every, self.last = run, every, -1
        self.tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)

    def compare(self, step: int, batch: Mapping[str, Any]) -> None:
        """Compare rows of a step's first micro-batch when the step is due."""
        if not self.every or step == self.last or step % self.every:
            return
        self.last = step
        ids = batch["completion_ids"][:_CHECKED_ROWS].tolist()
        mask = batch["completion_mask"][:_CHECKED_ROWS]
        if batch.get("tool_mask") is not None:
            mask = mask * batch["tool_mask"][:_CHECKED_ROWS]
        for row, own in zip(ids, mask.bool().tolist(), strict=True):
            length = own.index(False) if False in own else len(own)
            sampled = row[: min(length, _CHECKED_TOKENS)]
            if sampled:
                text = self.tokenizer.decode(
                    sampled, skip_special_tokens=False, clean_up_tokenization_spaces=False
                )
                self.run.retokenised(sampled, self.tokenizer(text, add_special_tokens=False)["input_ids"])


def _stop_reasons(batch: Mapping[str, Any], trainer: Any) -> list[str]:
    """Return eos or length, by the last token of each completion; masked when TRL masked the whole of it."""
    lengths = batch["completion_mask"].sum(dim=1)
    last = batch["completion_ids"].gather(1, (lengths - 1).clamp(min=0)[:, None])[:, 0].tolist()
    tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
    ends = {tokenizer.eos_token_id, tokenizer.pad_token_id}
    return [
        "masked" if n == 0 else "eos" if token in ends else "length"
        for n, token in zip(lengths.tolist(), last, strict=True)
    ]
