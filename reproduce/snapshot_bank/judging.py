"""How much held-out score the advice gives away on recorded runs, beside what engineers do instead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reproduce.snapshot_bank.recording import MARK, read_mark
from reproduce.snapshot_bank.training import JUDGING, TUNING
from trimtab.report.behaviour.checkpoint_evidence import evidence_of, rewards_of
from trimtab.report.run_view import RunView
from trimtab.snapshots import read_snapshots
from trimtab.snapshots.checkpoint_advice import CheckpointEvidence, advise_checkpoint

__all__ = ["PEERS", "Judged", "figures_of", "judge", "run_folders", "table_of"]

PEERS = ("advice", "last", "highest_reward", "highest_smoothed_reward", "highest_prompt_reward", "random")
"""Ways to pick. `highest_reward`: of the checkpoint's own step; `highest_smoothed_reward`: of the eight steps around it;
`highest_prompt_reward`: of the fixed prompts of its snapshot. `random`: the mean over all checkpoints."""


@dataclass(frozen=True)
class Judged:
    """One run: the step that each way picks, and the held-out score it gives away."""

    cause: str
    seed: int
    picks: dict[str, int]
    regret: dict[str, float]


def run_folders(store: Path) -> list[Path]:
    """Return the folders of recorded runs."""
    return sorted(path.parent for path in store.glob(f"*/{MARK}"))


def judge(folder: Path) -> Judged:
    """Let every way pick a checkpoint of one run, and look up what its held-out score was.

    The first snapshot is of the untrained policy; it may be picked as any other.
    """
    mark, view = read_mark(folder), RunView(folder)
    evidence = evidence_of(view, read_snapshots(view.reader).snapshots)
    held_out = {row.step: float(mark["held_out"][row.step]["mean"]) for row in evidence}
    picks = picks_of(evidence, rewards_of(view))
    best = max(held_out.values())
    regret = {name: best - held_out[step] for name, step in picks.items()}
    regret["random"] = best - float(np.mean(list(held_out.values())))
    return Judged(mark["cause"], mark["seed"], picks, regret)


def picks_of(evidence: Sequence[CheckpointEvidence], rewards: dict[int, float]) -> dict[str, int]:
    """Return the step that each way picks."""
    own = {row.step: rewards.get(max(row.step, 1), -np.inf) for row in evidence}
    prompts = {row.step: float(np.mean(row.prompt_rewards)) for row in evidence}
    return {
        "advice": advise_checkpoint(evidence).step,
        "last": evidence[-1].step,
        "highest_reward": max(own, key=lambda step: own[step]),
        "highest_smoothed_reward": max(evidence, key=lambda row: row.reward).step,
        "highest_prompt_reward": max(prompts, key=lambda step: prompts[step]),
    }


def of_half(runs: Iterable[Judged], half: str) -> list[Judged]:
    """Return the runs of the tuning or the judging seeds."""
    seeds = TUNING if half == "tuning" else JUDGING
    return [run for run in runs if run.seed in seeds]


def figures_of(runs: Sequence[Judged]) -> dict[str, Any]:
    """Return mean regrets over the judging runs, the advice's with a bootstrap interval over runs."""
    judged = of_half(runs, "judging")
    if not judged:
        return {"checkpoint_pick_runs": 0}
    table = {name: np.array([run.regret[name] for run in judged]) for name in PEERS}
    figures: dict[str, Any] = {"checkpoint_pick_regret": round(float(table["advice"].mean()), 4)}
    low, high = _interval(table["advice"])
    figures |= {"checkpoint_pick_regret_low": low, "checkpoint_pick_regret_high": high}
    figures["checkpoint_pick_regret_max"] = round(float(table["advice"].max()), 4)
    for name in PEERS[1:]:
        figures[f"checkpoint_pick_regret_{name}"] = round(float(table[name].mean()), 4)
    best = min(PEERS[1:], key=lambda name: float(table[name].mean()))
    low, high = _interval(table[best] - table["advice"])
    figures |= {
        "checkpoint_pick_best_peer": best,
        "checkpoint_pick_gain_low": low,
        "checkpoint_pick_gain_high": high,
    }
    return figures | {"checkpoint_pick_runs": len(judged)}


def _interval(values: Any) -> tuple[float, float]:
    picks = np.random.default_rng(7).integers(0, len(values), (4_000, len(values)))
    low, high = np.quantile(values[picks].mean(axis=1), (0.025, 0.975))
    return round(float(low), 4), round(float(high), 4)


def table_of(runs: Sequence[Judged], half: str) -> list[str]:
    """Return a table of regrets: one row a cause and one of all, one column a way to pick."""
    mine = of_half(runs, half)
    if not mine:
        return []
    causes = list(dict.fromkeys(run.cause for run in mine))
    lines = [
        f"| {half} runs | n | " + " | ".join(name.replace("_", " ") for name in PEERS) + " |",
        "|---|---|" + "---|" * len(PEERS),
    ]
    for cause in (*causes, "all"):
        rows = [run for run in mine if cause in (run.cause, "all")]
        cells = [f"{np.mean([run.regret[name] for run in rows]):.3f}" for name in PEERS]
        lines.append(f"| {cause.replace('_', ' ')} | {len(rows)} | " + " | ".join(cells) + " |")
    return lines
