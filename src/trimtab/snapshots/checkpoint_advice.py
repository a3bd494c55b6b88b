"""advise_checkpoint: which checkpoint to keep, from reward, stability and drift together.

Reward: the mean of the training reward around a step, and of the rewards of the fixed prompts, weighted by
their precision; one standard error is taken off, so that a lucky step does not win. Stability: checkpoints
behind an alarm of severity warning or above are left out while there are others. Drift: a nat of
|difference| to the first snapshot has a price, a fraction of what a nat brought on the way to the highest
reward, so of two checkpoints with nearly the same reward the one nearer to the start wins. A rising reward
that costs much drift is what reward hacking looks like.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.catalog import bound
from trimtab.errors import RunError
from trimtab.typing import Float64

_LEAST_ERROR = 1e-6
"""Standard error that a source has at least; the score of rewards that never differ."""


@dataclass(frozen=True)
class CheckpointEvidence:
    """What is known of the policy after `step` updates."""

    step: int
    reward: float = math.nan
    """Mean training reward of the steps around it; nan: not known."""
    reward_se: float = math.nan
    prompt_rewards: tuple[float, ...] = ()
    """Reward of each fixed prompt of its snapshot, in one order for all checkpoints; empty: not known."""
    drift: float = math.nan
    """Mean |difference| of log-probabilities to the first snapshot, in nats; nan: not known."""
    alarms: tuple[str, ...] = ()
    """Rules of severity warning or above that fired for it or shortly before it."""
    ess_frac: float = math.nan
    """Sequence ESS fraction around it; shown, and judged by the rules."""


@dataclass(frozen=True)
class RankedCheckpoint:
    """One checkpoint with what the advice made of it."""

    evidence: CheckpointEvidence
    score: float
    """Reward of both sources, centred on the level of the fixed prompts; nan: not known."""
    score_se: float
    utility: float
    """Score less one standard error less the price of its drift."""


@dataclass(frozen=True)
class CheckpointAdvice:
    """What `advise_checkpoint` returns."""

    step: int
    sentence: str
    reasons: tuple[str, ...]
    ranked: tuple[RankedCheckpoint, ...]
    """All of the evidence in the order of steps."""
    alike: tuple[int, ...]
    """Steps whose score is within two standard errors of the advised one's; none of them is clearly worse."""


def advise_checkpoint(
    evidence: Sequence[CheckpointEvidence], among: Collection[int] | None = None
) -> CheckpointAdvice:
    """Say which checkpoint to keep.

    Args:
        evidence: One record a checkpoint, of different steps.
        among: Steps to choose from; the others count for scores and the price of drift alone. None: all.

    Returns:
        The step, one sentence, its reasons, and every checkpoint with its score.

    Raises:
        RunError: There are no checkpoints to choose from, or two are of one step.

    Example:
        >>> known = ((0, 0.2, 0.0), (50, 0.7, 0.2), (100, 0.71, 0.9))
        >>> rows = [CheckpointEvidence(s, r, 0.01, drift=d) for s, r, d in known]
        >>> advise_checkpoint(rows).step
        50
    """
    rows = sorted(evidence, key=lambda row: row.step)
    wanted = {row.step for row in rows if among is None or row.step in among}
    if not wanted or len({row.step for row in rows}) < len(rows):
        raise RunError("advice on checkpoints needs at least one, each of a step of its own")
    everywhere = _ranked(rows)
    ranked = [one for one in everywhere if one.evidence.step in wanted]
    calm = [one for one in ranked if not one.evidence.alarms]
    fewest = min(len(one.evidence.alarms) for one in ranked)
    candidates = calm or [one for one in ranked if len(one.evidence.alarms) == fewest]
    scored = [one for one in candidates if math.isfinite(one.utility)]
    best = max(scored, key=lambda one: (one.utility, -one.evidence.step)) if scored else candidates[-1]
    alike = tuple(
        one.evidence.step for one in candidates
        if one is not best and abs(one.score - best.score) <= 2 * math.hypot(one.score_se, best.score_se)
    )  # fmt: skip
    reasons = tuple(_reasons(best, ranked, candidates, alike))
    return CheckpointAdvice(best.evidence.step, _sentence(best, reasons), reasons, tuple(everywhere), alike)


def _ranked(rows: Sequence[CheckpointEvidence]) -> list[RankedCheckpoint]:
    scores, errors = _scores(rows)
    price = _price(rows, scores)
    utilities = scores - errors - price * _drift_everywhere(rows)
    columns = zip(rows, scores.tolist(), errors.tolist(), utilities.tolist(), strict=True)
    return [RankedCheckpoint(*column) for column in columns]


def _drift_everywhere(rows: Sequence[CheckpointEvidence]) -> Float64:
    """Return the drift of each checkpoint; one without a snapshot pays what lies between its neighbours'."""
    drift, steps = np.array([row.drift for row in rows]), np.array([row.step for row in rows])
    known = np.isfinite(drift)
    return np.interp(steps, steps[known], drift[known]) if known.any() else np.zeros(len(rows))


def _scores(rows: Sequence[CheckpointEvidence]) -> tuple[Float64, Float64]:
    """Return score and standard error of each checkpoint: both sources centred, weighted by precision."""
    sources = [one for one in (_prompt_source(rows), _training_source(rows)) if one is not None]
    if not sources:
        empty = np.full(len(rows), math.nan)
        return empty, empty
    everywhere = np.all([np.isfinite(mean) for mean, _ in sources], axis=0)
    centre = everywhere if everywhere.any() else np.ones(len(rows), np.bool_)
    total, weight = np.zeros(len(rows)), np.zeros(len(rows))
    for mean, error in sources:
        known = np.isfinite(mean)
        precision = np.where(known, 1.0 / np.maximum(error, _LEAST_ERROR) ** 2, 0.0)
        total += np.where(known, precision * (mean - np.nanmean(mean[centre])), 0.0)
        weight += precision
    with np.errstate(divide="ignore", invalid="ignore"):
        level = float(np.nanmean(sources[0][0][centre]))
        return np.where(weight > 0, total / weight + level, math.nan), np.where(
            weight > 0, weight**-0.5, math.nan
        )


def _prompt_source(rows: Sequence[CheckpointEvidence]) -> tuple[Float64, Float64] | None:
    """Return mean and standard error of the fixed prompts' rewards, each averaged with its neighbours (1,
    2, 1).

    The same prompts everywhere, so the error is of what is left after each prompt's own mean.
    """
    known = np.array([len(row.prompt_rewards) > 0 for row in rows])
    if len({len(row.prompt_rewards) for row in rows} - {0}) != 1:
        return None
    table = np.array([row.prompt_rewards for row in rows if row.prompt_rewards], np.float64)
    table = table[:, np.isfinite(table).all(axis=0)]
    if table.shape[1] < 2:
        return None
    padded = np.concatenate([table[:1], table, table[-1:]])
    smooth = (padded[:-2] + 2 * padded[1:-1] + padded[2:]) / 4
    left = smooth - smooth.mean(axis=0) if len(table) > 1 else smooth  # one alone has nothing to pair with
    mean, error = np.full(len(rows), math.nan), np.full(len(rows), math.nan)
    mean[known] = smooth.mean(axis=1)
    error[known] = left.std(axis=1, ddof=1) / math.sqrt(table.shape[1])
    return mean, error


def _training_source(rows: Sequence[CheckpointEvidence]) -> tuple[Float64, Float64] | None:
    mean = np.array([row.reward for row in rows], np.float64)
    error = np.array([row.reward_se for row in rows], np.float64)
    if not np.isfinite(mean).any():
        return None
    known = error[np.isfinite(error)]
    return mean, np.where(np.isfinite(error), error, float(known.max()) if known.size else 1.0)


def _price(rows: Sequence[CheckpointEvidence], scores: Float64) -> float:
    """Return the price of a nat: a fraction of the gain a nat brought from the start to the highest score."""
    drift = np.array([row.drift for row in rows], np.float64)
    known = np.isfinite(drift) & np.isfinite(scores)
    if known.sum() < 2:
        return 0.0
    drift, scores = drift[known], scores[known]
    start, top = int(np.argmin(drift)), int(np.argmax(scores))
    moved, gain = drift[top] - drift[start], scores[top] - scores[start]
    return float(bound("snapshot_drift_price") * max(gain, 0.0) / moved) if moved > 0 else 0.0


def _sentence(best: RankedCheckpoint, reasons: Sequence[str]) -> str:
    return f"Keep the checkpoint of step {best.evidence.step}: {'; '.join(reasons)}."


def _reasons(
    best: RankedCheckpoint,
    ranked: Sequence[RankedCheckpoint],
    candidates: Sequence[RankedCheckpoint],
    alike: Sequence[int],
) -> list[str]:
    """Return the clauses of the sentence: reward, stability, drift, what is as good."""
    row, reasons = best.evidence, []
    if math.isfinite(best.score):
        top = max((one for one in ranked if math.isfinite(one.score)), key=lambda one: one.score)
        text = f"reward {best.score:.3g}" + (
            f" ± {best.score_se:.2g}" if best.score_se > 2 * _LEAST_ERROR else ""
        )
        if top is best:
            reasons.append(f"{text}, the highest")
        else:
            reasons.append(f"{text}, where the highest is {top.score:.3g} at step {top.evidence.step}")
    else:
        reasons.append(
            "no reward is known, so this is only the last one without an alarm: compare its behaviour first"
        )
    left_out = [one for one in ranked if one not in candidates]
    if left_out:
        rules = list(dict.fromkeys(rule for one in left_out for rule in one.evidence.alarms))
        steps = ", ".join(str(one.evidence.step) for one in left_out[:4]) + (
            " and more" if len(left_out) > 4 else ""
        )
        reasons.append(f"left out for alarms ({', '.join(rules[:3])}): {steps}")
    elif any(one.evidence.alarms for one in ranked):
        reasons.append(
            f"alarms speak against every checkpoint ({', '.join(row.alarms[:3])}): trust none blindly"
        )
    else:
        reasons.append("no alarm speaks against any checkpoint")
    if math.isfinite(row.drift):
        last = next((one.evidence for one in reversed(ranked) if math.isfinite(one.evidence.drift)), row)
        more = f" (step {last.step}: {last.drift:.3g})" if last.step != row.step else ""
        reasons.append(f"drift {row.drift:.3g} nats from the first snapshot{more}")
    if alike:
        shown = ", ".join(map(str, alike[:4])) + (" and more" if len(alike) > 4 else "")
        reasons.append(f"not clearly worse: {shown}")
    return reasons
