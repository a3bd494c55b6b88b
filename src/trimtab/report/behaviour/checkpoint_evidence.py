"""What a run's record says of each checkpoint: reward, open alarms, ESS, and its snapshot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from trimtab.catalog import bound
from trimtab.errors import RunError
from trimtab.measure.sequences.aggregates import trainer_aggregates
from trimtab.report.run_view import RunView
from trimtab.snapshots.answer_traits import traits_of
from trimtab.snapshots.checkpoint_advice import CheckpointEvidence
from trimtab.snapshots.snapshot_comparison import drift_of
from trimtab.snapshots.snapshot_records import Snapshot
from trimtab.types import Alarm

_LOUD = ("warning", "critical")


def evidence_of(
    view: RunView, snapshots: Sequence[Snapshot], steps: Sequence[int] | None = None
) -> list[CheckpointEvidence]:
    """Return what a run's record says of its checkpoints.

    Args:
        view: The run.
        snapshots: Its snapshots, in the order of steps.
        steps: Steps of the checkpoints that exist; None: those of the snapshots. One without a snapshot has
        no drift.

    Returns:
        One record a checkpoint.

    Raises:
        RunError: There are no checkpoints, or a step is not of the run.

    Example:
        >>> evidence_of(load_view("runs/exp1"), snapshots)  # doctest: +SKIP
    """
    by_step = {snapshot.step: snapshot for snapshot in snapshots}
    wanted = sorted(set(by_step if steps is None else steps))
    rewards = rewards_of(view)
    last = max([*by_step, *(int(row["step"]) for row in view.steps)], default=0)
    if not wanted:
        raise RunError(f"{view.folder} has no snapshots and no checkpoints were named")
    if outside := [step for step in wanted if not 0 <= step <= last]:
        raise RunError(f"step {outside[0]} is not of this run, which has steps up to {last}")
    ess = view.step_series.get(("total/sequence_ess_frac", "all"))
    ess_frac = {} if ess is None else dict(zip(ess.steps.tolist(), ess.values.tolist(), strict=True))
    first = snapshots[0] if snapshots else None
    compared = _compared(snapshots, wanted)
    rows = []
    for step in wanted:
        reward, error = _around(rewards, step)
        snapshot = by_step.get(step)
        drift = math.nan if first is None or snapshot is None else drift_of(first, snapshot)
        rows.append(
            CheckpointEvidence(
                step,
                reward,
                error,
                compared.get(step, ()),
                drift,
                alarms_behind(view.alarms, step),
                _around(ess_frac, step)[0],
            )
        )
    return rows


def rewards_of(view: RunView) -> dict[int, float]:
    """Return step -> mean training reward of its batch."""
    rewards = {}
    for row in view.steps:
        value = trainer_aggregates(row["metrics"]).get("reward", math.nan)
        if math.isfinite(value):
            rewards[int(row["step"])] = float(value)
    if not rewards and (series := view.step_series.get(("reward/mean", "all"))) is not None:
        pairs = zip(series.steps.tolist(), series.values.tolist(), strict=True)
        rewards = {int(step): float(value) for step, value in pairs if math.isfinite(value)}
    return rewards


def alarms_behind(alarms: Sequence[Alarm], step: int) -> tuple[str, ...]:
    """Return the rules of severity warning or above that speak against a checkpoint.

    A cleared alarm counts as an open one: it clears too where the level has become the run's own, and what
    the policy learnt in between stays. After `guard_open_limit` steps neither says anything of now.
    """
    limit = bound("guard_open_limit")
    rules = [one.rule for one in alarms if one.severity in _LOUD and one.since <= step <= one.step + limit]
    return tuple(dict.fromkeys(rules))


def _compared(snapshots: Sequence[Snapshot], wanted: Sequence[int]) -> dict[int, tuple[float, ...]]:
    """Return the rewards of the prompts that all wanted snapshots have, in one order; nothing for a
    step without a snapshot."""
    mine = [snapshot for snapshot in snapshots if snapshot.step in set(wanted)]
    if not mine:
        return {}
    common = [key for key in dict.fromkeys(mine[0].keys) if all(key in set(one.keys) for one in mine)]
    table = {}
    for one in mine:
        values = traits_of(one.answers)["reward"]
        by_key: dict[str, list[float]] = {}
        for key, value in zip(one.keys, values.tolist(), strict=True):
            by_key.setdefault(key, []).append(value)
        table[one.step] = tuple(float(np.mean(by_key[key])) for key in common)
    known = [i for i in range(len(common)) if all(math.isfinite(row[i]) for row in table.values())]
    return {step: tuple(row[i] for i in known) for step, row in table.items()} if known else {}


def _around(values: Mapping[int, float], step: int) -> tuple[float, float]:
    """Return mean and standard error of the steps around a checkpoint: half of them before it, half after."""
    half = int(bound("snapshot_reward_steps")) // 2
    near = [
        values[s] for s in range(step - half + 1, step + half + 1) if math.isfinite(values.get(s, math.nan))
    ]
    if not near:
        return math.nan, math.nan
    return float(np.mean(near)), float(np.std(near, ddof=1) / math.sqrt(len(near))) if len(
        near
    ) > 1 else math.nan
