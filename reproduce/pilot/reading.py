"""What one recorded run says: did it collapse, when did each series first leave its own noise, how large was each tail."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reproduce.pilot.marks import check_bank, read_controls, read_mark, run_folders, state_of
from reproduce.pilot.rules import PILOT_RULES
from trimtab.errors import RunError
from trimtab.report.run_view import RunView, load_view
from trimtab.types import Reading

__all__ = ["QUANTILES", "Outcome", "collapse_step", "load_bank", "outcome_of"]

SMOOTH = 10  # steps of the trailing mean that says whether the reward fell
LEARNT = 15  # steps before which no peak counts
LATE = 0.25  # of a run's steps
IMPROVED = 0.1  # of mean reward
QUANTILES = ("p95", "p99", "p999")  # of |drift|: all three are read, since a finding may hang on which


@dataclass(frozen=True, eq=False)
class Outcome:
    """One run. Steps are None where nothing happened; `first` maps each of the pilot's rules to the step of its first alarm."""

    arm: str
    family: str
    seed: int
    steps: int
    learning: bool
    view: RunView
    reward: list[float]
    collapsed: int | None
    first: dict[str, int | None]
    late: dict[str, float]
    controls: list[dict[str, Any]]

    @property
    def healthy(self) -> bool:
        """It trained, and its reward never fell by half."""
        return self.learning and self.collapsed is None

    @property
    def improved(self) -> bool:
        """The last quarter's mean reward is at least `IMPROVED` above that of the first ten steps, though the tasks grow harder."""
        return self.late["reward"] >= _mean(self.reward[:SMOOTH]) + IMPROVED

    @property
    def ended_low(self) -> bool:
        """The last quarter's mean reward is at most half of the best ten-step mean: a collapse that lasted."""
        values = np.array([value for value in self.reward if math.isfinite(value)])
        if values.size < SMOOTH:
            return False
        best = np.convolve(values, np.ones(SMOOTH) / SMOOTH, mode="valid").max()
        return bool(self.late["reward"] <= 0.5 * best)


def collapse_step(reward: Sequence[float]) -> int | None:
    """The first step (from 1) at which the mean of the last 10 rewards is at most half its highest value so far.

    Steps without a reward (nan: several epochs on one batch) are passed over.
    """
    values = np.asarray(reward, dtype=float)
    known = np.flatnonzero(np.isfinite(values))
    values = values[known]
    if values.size < SMOOTH:
        return None
    mean = np.convolve(values, np.ones(SMOOTH) / SMOOTH, mode="valid")  # ends at step SMOOTH, SMOOTH + 1, ...
    peak = -math.inf
    for at, value in enumerate(mean.tolist()):
        step = int(known[at + SMOOTH - 1]) + 1
        if value <= 0.5 * peak:
            return step
        if step >= LEARNT:
            peak = max(peak, value)
    return None


def outcome_of(folder: Path) -> Outcome:
    """Read one run of the bank; RunError for one that is damaged or was cut short."""
    mark = read_mark(folder)
    view = load_view(folder)
    if len(view.steps) < mark["steps"]:
        raise RunError(
            f"{folder} has {len(view.steps)} of its {mark['steps']} steps; restore it or move it out of the bank"
        )
    if not any(folder.glob("readings.*")):
        raise RunError(f"{folder} has no readings; restore it or move it out of the bank")
    reward = [row["metrics"].get("reward", math.nan) for row in view.steps]
    controls = read_controls(folder)
    return Outcome(
        arm=mark["arm"],
        family=mark["family"],
        seed=mark["seed"],
        steps=mark["steps"],
        learning=mark["settings"]["config"].get("learning_rate", 1.0) > 0,
        view=view,
        reward=reward,
        collapsed=collapse_step(reward),
        first=_first_alarms(view),
        late=_late(view, controls),
        controls=controls,
    )


def load_bank(bank: Path) -> list[Outcome]:
    """Every finished run of both halves, by arm and seed; runs that were left unfinished are not read."""
    check_bank(bank)
    found = [_read(folder) for folder in run_folders(bank) if state_of(folder) == "finished"]
    return sorted(found, key=lambda o: (o.arm, o.seed))


def _read(folder: Path) -> Outcome:
    try:
        return outcome_of(folder)
    except (KeyError, TypeError, ValueError, OSError, EOFError) as error:
        raise RunError(
            f"{folder} cannot be read: {type(error).__name__} {error}; restore it or move it out of the bank"
        ) from error


def _first_alarms(view: RunView) -> dict[str, int | None]:
    """First alarm of each of the pilot's rules, replayed."""
    found: dict[str, int | None] = {}
    for rule in PILOT_RULES:
        detector = rule.detector()
        found[rule.name] = _first(
            detector.update(r.step, rule.value(r.value), _se(rule.value(r.low), rule.value(r.high))).fired
            and r.step
            for r in _judged(view, rule.key, rule.slice)
        )
    return found


def _judged(view: RunView, key: str, where: str) -> list[Reading]:
    return [r for r in view.series(key, where) if r.status == "ok"]


def _late(view: RunView, controls: list[dict[str, Any]]) -> dict[str, float]:
    """Means over the last quarter of the run."""
    last = view.steps[-1]["step"] if view.steps else 0
    start = last * (1 - LATE)
    wanted = {
        "reward": ("aggregate/reward", "all"),
        "kl": ("aggregate/kl", "all"),
        "grad_norm": ("aggregate/grad_norm", "all"),
        "entropy": ("aggregate/entropy", "all"),
        "all_p95": ("drift/p95", "all"),
        **{f"text_{q}": (f"drift/{q}", "text") for q in QUANTILES},
        **{f"post_{q}": (f"drift/{q}", "post_tool") for q in QUANTILES},
        "text_unsupported": ("ref_logprob/below_5_frac", "text"),
        "post_unsupported": ("ref_logprob/below_5_frac", "post_tool"),
        "text_probe_p95": ("lagged_drift/p95", "text"),
        "post_probe_p95": ("lagged_drift/p95", "post_tool"),
    }
    found = {
        name: _mean([r.value for r in _judged(view, *where) if r.step > start])
        for name, where in wanted.items()
    }
    found["post_tokens"] = float(
        sum(
            row["slices"].get("post_tool", {}).get("n_tokens", 0) for row in view.steps if row["step"] > start
        )
    )
    rows = [row for row in controls if row["step"] > last / 2 and row["n_post"] > 0]
    for kind in ("turn", "position"):
        matched = [row[f"matched_{kind}"] for row in rows]
        for part in ("post_p95", "post_p99", "text_p95", "text_p99"):
            found[f"matched_{kind}_{part}"] = _mean([m[part] for m in matched])
        found[f"matched_{kind}_covered"] = _mean([m["covered"] for m in matched])
    return found


def _mean(values: list[float]) -> float:
    kept = [value for value in values if math.isfinite(value)]
    return math.fsum(kept) / len(kept) if kept else math.nan


def _first(found: Iterable[int | bool]) -> int | None:
    return next((int(step) for step in found if step), None)


def _se(low: float, high: float) -> float:
    return (high - low) / (2 * 1.96) if math.isfinite(low) and math.isfinite(high) else math.nan
