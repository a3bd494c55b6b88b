"""One stream of the bench: healthy steps, a fault or a healthy change, through `trimtab.open_run`, and what the diagnosis says of it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.fault_bank.faults import FAULTS, Spot, rank_of
from benchmarks.fault_bank.healthy import HEALTHY, change, plan_of
from benchmarks.fault_bank.pool import SOURCES, TOOLS, Draw, Step, draw

import trimtab
from trimtab.report.run_diagnosis import diagnosis
from trimtab.report.run_view import load_view
from trimtab.traces.core.tool_call import ToolCall

__all__ = ["Case", "run_case", "steps_of", "write"]

ONSETS = (30, 40)
"""A fault sets in at a step drawn from these, the second left out."""
AFTER = {1.0: 18, 1 / 3: 43}
"""Strength -> steps from the onset to the end of a stream."""
HEALTHY_STEPS = 100


@dataclass(frozen=True)
class Case:
    """One stream: a kind of `FAULTS` or `HEALTHY`, its strength (0 for healthy ones), and its seed."""

    kind: str
    strength: float
    seed: int

    @property
    def name(self) -> str:
        """What its result is stored under."""
        label = {0.0: "", 1.0: "/full"}.get(self.strength, "/third")
        return f"{self.kind}{label}/{self.seed}"


def steps_of(case: Case) -> tuple[list[Step], int, Spot]:
    """The steps of a stream, the step of its onset (-1: none), and where its fault sits."""
    number = [*FAULTS, *HEALTHY].index(case.kind)
    rng = np.random.default_rng([case.seed, number, round(30 * case.strength), 11])
    onset = int(rng.integers(*ONSETS))
    spot = Spot(case.strength, TOOLS[rng.integers(3)], int(rng.integers(3)), bool(rng.random() < 0.5))
    if case.kind in HEALTHY:
        steps = []
        for step in draw(plan_of(case.kind, HEALTHY_STEPS), rng):
            change(case.kind, step, step.number / HEALTHY_STEPS, rng)
            steps.append(step)
        return steps, -1, spot
    fault, steps = FAULTS[case.kind], []
    for step in draw(Draw(onset + AFTER[case.strength], groups=6 if fault.ranks > 1 else 4), rng):
        if case.kind == "reward_proxy":
            step.weights = {"correct": 0.45, "format": 0.1, "judge": 0.45}
            step.parts["judge"] = np.clip(rng.normal(0.3, 0.1, step.lengths.size), 0.0, 1.0)
        if step.number >= onset:
            fault.apply(step, spot, step.number - onset, rng)
        steps.append(step)
    return steps, onset, spot


def write(folder: Path, steps: Iterator[Step] | list[Step], ranks: int = 1) -> None:
    """Feed the steps through `trimtab.open_run`, one writer a rank."""
    with ExitStack() as stack:
        config = {"world_size": ranks} if ranks > 1 else {}
        options: dict[str, Any] = {"strict": True, "config": config}
        runs = [stack.enter_context(trimtab.open_run(folder, rank=rank, **options)) for rank in range(ranks)]
        for step in steps:
            for rank, run in enumerate(runs):
                _feed(
                    run,
                    step,
                    np.flatnonzero(rank_of(step) == rank) if ranks > 1 else np.arange(step.lengths.size),
                )


def _feed(run: trimtab.Run, step: Step, rows: np.ndarray) -> None:
    """Hand the sequences `rows` of a step to one rank's run."""
    inside = np.isin(step.rows, rows)
    reward = step.reward
    groups = reward.reshape(-1, 8)
    advantage = ((groups - groups.mean(1, keepdims=True)) / (groups.std(1, keepdims=True) + 1e-4)).ravel()
    shape = {
        "loss_mask": step.own[inside], "lengths": step.lengths[rows], "tool_tokens": step.tool_tokens[inside],
        "tools": [step.tools[row] for row in rows], "tool_names": TOOLS, "source": [SOURCES[s] for s in step.source[rows]],
        "source_names": SOURCES,
    }  # fmt: skip
    run.observe(
        **shape, rollout_logprobs=step.rollout[inside], old_logprobs=step.old[inside], logprobs=step.new[inside],
        ref_logprobs=step.ref[inside], entropy=step.entropy[inside], advantages=advantage[rows], reward=reward[rows],
        token_ids=step.pool["ids"][inside], reference="the first policy", group=step.group[rows] + 100 * step.number,
        reward_parts={name: values[rows] for name, values in step.parts.items()}, stop_reason=[step.stop[row] for row in rows],
        policy_version=np.repeat(step.number - step.age[rows], step.lengths[rows]), current_version=step.number,
    )  # fmt: skip
    half = rows[rows % 2 == step.number % 2]
    sampled = np.isin(step.rows, half)
    shape |= {
        "loss_mask": step.own[sampled],
        "tool_tokens": step.tool_tokens[sampled],
        "lengths": step.lengths[half],
    }
    shape |= {"tools": [step.tools[row] for row in half], "source": [SOURCES[s] for s in step.source[half]]}
    run.observe_update(step.new[sampled], step.after[sampled], **shape)
    for row in rows:
        for name, error in zip(step.tools[row], step.errors[row], strict=True):
            run.tool_call(ToolCall(name=name, error=error, latency_s=0.1, result_size=4))
    rate = {"learning_rate": step.rate} if step.rates_logged else {}
    own = step.own[inside]
    run.flush(step.number, {
        "reward": float(reward.mean()), "entropy": float(step.entropy[inside][own].mean()), "reward_std": float(groups.std(1).mean()),
        "length": float(own.sum() / rows.size), **rate,
    })  # fmt: skip


def run_case(case: Case, keep: Path | None = None) -> dict[str, Any]:
    """Write the stream of a case and return what the diagnosis says of it. `keep`: folder that is left in place."""
    steps, onset, spot = steps_of(case)
    ranks = (
        FAULTS[case.kind].ranks
        if case.kind in FAULTS
        else 3
        if case.kind == "plain" and case.seed % 4 == 1
        else 1
    )
    if keep is not None:
        shutil.rmtree(keep, ignore_errors=True)
        write(keep, steps, ranks)
        return read(keep, onset, spot, case)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "run", steps, ranks)
        return read(Path(folder) / "run", onset, spot, case)


def read(folder: Path, onset: int, spot: Spot, case: Case) -> dict[str, Any]:
    """What `trimtab diagnose` says of a run, with the truth beside it."""
    summary = diagnosis(load_view(folder))
    loud = [a for a in summary["alarms"] if a["severity"] != "info"]
    of = FAULTS[case.kind].sits_in if case.kind in FAULTS else ""
    incidents = [
        {
            "since": one["since"], "last": max(a["step"] for a in one["alarms"]), "slice": one["slice"], "severity": one["severity"],
            "causes": [[cause["name"], cause["score"]] for cause in one["causes"]],
        }
        for one in summary["incidents"]
    ]  # fmt: skip
    return {
        "onset": onset, "steps": summary["num_steps"], "place": {"tool": spot.tool, "rank": f"rank/{spot.rank}"}.get(of, ""),
        "alarms": sorted([a["step"], a["rule"], a["slice"]] for a in loud), "incidents": incidents,
    }  # fmt: skip
