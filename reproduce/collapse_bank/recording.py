"""Record kept tokens through `trimtab.open_run`, as a trainer's loop would have: so a later version measures the same run anew.

The recording sees what a trainer has: no event, no fault, no true reward apart from the one that is trained on.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

import trimtab
from reproduce.collapse_bank.batches import KINDS, STOPS, Array, RunBatches, StepBatch
from reproduce.collapse_bank.events import event_of
from reproduce.collapse_bank.marks import write_mark
from reproduce.collapse_bank.slim_run import slim_run
from trimtab.capture import token_batch
from trimtab.lab.database import TOOL_NAMES
from trimtab.lab.probe_bank import ProbeBank, probe_bank
from trimtab.runs import compress_run
from trimtab.traces.core.tool_call import ToolCall
from trimtab.types import TokenBatch

__all__ = ["WINDOW", "arrays_of", "averages_of", "probe_batch", "record"]

WINDOW = 600  # tokens of a window: a step of the bank has some 550 of the policy's own
TOOLS = (*TOOL_NAMES, "other")
FROM_START = "the policy at the first step"


def record(run: RunBatches, folder: Path) -> None:
    """Write a run folder from the tokens of a run; a folder that is there is replaced."""
    shutil.rmtree(folder, ignore_errors=True)
    probes = probe_bank()
    with trimtab.open_run(folder, rank=0, strict=True, min_tokens=WINDOW, state_every=10) as watch:
        for batch in run.steps:
            if batch.probe_logprobs is not None:
                watch.probe(batch.step, probe_batch(probes, batch.probe_logprobs))
            watch.observe(**arrays_of(batch))
            for tool, error in zip(batch.calls.tolist(), batch.failed.tolist(), strict=True):
                watch.tool_call(ToolCall(name=TOOLS[tool - 1], error="failed" if error else ""))
            watch.flush(batch.step, averages_of(batch))
    compress_run(folder)
    slim_run(folder)
    event = event_of(run.rewards)
    mark = {**run.identity, "steps": len(run.steps), "event": None if event is None else event.step}
    if any(not np.array_equal(b.sequences["reward"], b.sequences["true_reward"]) for b in run.steps):
        mark["true_rewards"] = [round(value, 5) for value in run.rewards]
    write_mark(folder, mark)


def arrays_of(batch: StepBatch) -> dict[str, Any]:
    """Return the arguments of `trimtab.token_batch` for one step."""
    tokens, rows = batch.tokens, batch.sequences
    count = rows["group"].size
    lengths = rows["token_counts"].astype(np.int64)
    kinds = [KINDS[kind] for kind in rows["kind"].tolist()]
    calls = np.split(batch.calls, np.cumsum(rows["call_counts"].astype(np.int64))[:-1])
    return {
        "loss_mask": tokens["own"],
        "lengths": lengths,
        "tool_tokens": ~tokens["own"],
        "tools": [[TOOLS[tool - 1] for tool in of_row.tolist()] for of_row in calls],
        "tool_names": TOOLS,
        "source": kinds,
        "source_names": KINDS,
        "stop_reason": [STOPS[stop] for stop in rows["stop"].tolist()],
        "token_ids": tokens["token_ids"],
        **{name: tokens[name] for name in ("rollout_logprobs", "old_logprobs", "logprobs", "ref_logprobs", "entropy")},
        "ref_scored": rows["scored"],
        "reference": FROM_START,
        "advantages": np.repeat(rows["advantage"], lengths),
        "policy_version": np.repeat(rows["version"], lengths),
        "current_version": batch.step - 1,
        "episode_id": batch.step * count + np.arange(count),
        "group": rows["group"],
        "reward": rows["reward"],
        "reward_parts": _parts(batch, kinds),
    }  # fmt: skip


def averages_of(batch: StepBatch) -> dict[str, float]:
    """Return what any trainer logs of a step: reward, entropy, gradient norm, KL to the start (k3), loss, length, reward by task."""
    tokens, rows = batch.tokens, batch.sequences
    own = tokens["own"]
    scored = own & np.repeat(rows["scored"], rows["token_counts"].astype(np.int64))
    drift = (tokens["logprobs"] - tokens["ref_logprobs"])[scored].astype(np.float64)
    averages = {
        "reward": float(rows["reward"].mean()),
        "entropy": float(tokens["entropy"][own].astype(np.float64).mean()),
        "grad_norm": float(batch.numbers["grad_norm"]),
        "kl": float((np.exp(-drift) - 1 + drift).mean()),
        "loss": float(batch.numbers["loss"]),
        "length": float(own.sum() / rows["group"].size),
        "learning_rate": float(batch.numbers["rate"]),
    }
    for kind in np.unique(rows["kind"]).tolist():
        averages[f"reward/{KINDS[kind]}"] = float(rows["reward"][rows["kind"] == kind].mean())
    return averages


def _parts(batch: StepBatch, kinds: list[str]) -> dict[str, Array]:
    """Return the parts of the reward, and the reward of each kind of task, nan where a sequence is of another kind."""
    rows = batch.sequences
    parts = {"correct": rows["correct"], "format": rows["format"]}
    if rows["long"].any():
        parts["long"] = rows["long"]
    named = np.array(kinds)
    return parts | {kind: np.where(named == kind, rows["reward"], np.nan) for kind in KINDS}


def probe_batch(bank: ProbeBank, values: Array) -> TokenBatch:
    """Return the probe transcripts with today's log-probabilities of their own tokens."""
    logprobs = np.zeros(bank.ids.shape, np.float32)
    logprobs[bank.loss_mask] = values
    inside = bank.attention_mask & (np.arange(bank.ids.shape[1]) >= bank.prompt_lengths[:, None])
    return token_batch(bank.loss_mask, exists=inside, tool_tokens=inside & ~bank.env_mask, logprobs=logprobs)
