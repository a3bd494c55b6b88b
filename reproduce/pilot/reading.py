"""What one recorded run says: did it collapse, when did each series first leave its own noise, how large was each tail."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reproduce.pilot.rules import PILOT_RULES
from reproduce.pilot.train import MARK
from trimtab.detect.growth import SustainedGrowth
from trimtab.records import Reading
from trimtab.report.view import RunView, load_view

__all__ = ["Outcome", "collapse_step", "load_bank", "outcome_of"]

SMOOTH = 10  # steps of the trailing mean that says whether the reward fell
LEARNT = 15  # steps before which no peak counts
LATE = 0.25  # of a run's steps
TAILS = {"text_tail": ("drift/p95", "text"), "post_tail": ("drift/p95", "post_tool")}


@dataclass(frozen=True, eq=False)
class Outcome:
    """One run. Steps are None where nothing happened; `first` maps rule or series to the step it left its noise."""

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
    """Read one run of the bank."""
    mark = json.loads((folder / MARK).read_text())
    view = load_view(folder)
    reward = [row["metrics"].get("reward", math.nan) for row in view.steps]
    controls = [json.loads(line) for line in (folder / "controls.jsonl").read_text().splitlines()]
    return Outcome(
        arm=mark["arm"],
        family=mark["family"],
        seed=mark["seed"],
        steps=mark["steps"],
        learning=mark["settings"]["config"].get("learning_rate", 1.0) > 0,
        view=view,
        reward=reward,
        collapsed=collapse_step(reward),
        first=_first_moments(view),
        late=_late(view, controls),
        controls=controls,
    )


def load_bank(bank: Path) -> list[Outcome]:
    """Every finished run of both halves, by arm and seed."""
    found = [outcome_of(path.parent) for path in sorted(bank.glob(f"*/*/{MARK}"))]
    return sorted(found, key=lambda o: (o.arm, o.seed))


def _first_moments(view: RunView) -> dict[str, int | None]:
    """First alarm of each rule, replayed with today's detectors, and of each tail by itself with the same detector."""
    found: dict[str, int | None] = {}
    for rule in PILOT_RULES:
        detector = rule.detector()
        found[rule.name] = _first(
            detector.update(r.step, rule.value(r.value), _se(rule.value(r.low), rule.value(r.high))).fired
            and r.step
            for r in _judged(view, rule.key, rule.slice)
        )
    for name, (key, where) in TAILS.items():
        growth = SustainedGrowth(min_effect=math.log(1.5))
        found[name] = _first(
            growth.update(r.step, _log(r.value), _se(_log(r.low), _log(r.high))).fired and r.step
            for r in _judged(view, key, where)
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
        "text_p95": ("drift/p95", "text"),
        "text_p99": ("drift/p99", "text"),
        "post_p95": ("drift/p95", "post_tool"),
        "post_p99": ("drift/p99", "post_tool"),
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
    variance = [row["gradient_variance"] for row in rows]
    found["variance_share"] = _mean(
        [v["post_tool"] / (v["post_tool"] + v["text"]) for v in variance if v["post_tool"] + v["text"] > 0]
    )
    found["token_share"] = _mean([row["n_post"] / (row["n_post"] + row["n_text"]) for row in rows])
    for kind in ("turn", "position"):
        matched = [row[f"matched_{kind}"] for row in rows]
        found[f"matched_{kind}_post_p95"] = _mean([m["post_p95"] for m in matched])
        found[f"matched_{kind}_text_p95"] = _mean([m["text_p95"] for m in matched])
        found[f"matched_{kind}_covered"] = _mean([m["covered"] for m in matched])
    return found


def _mean(values: list[float]) -> float:
    kept = [value for value in values if math.isfinite(value)]
    return math.fsum(kept) / len(kept) if kept else math.nan


def _first(found: Iterable[int | bool]) -> int | None:
    return next((int(step) for step in found if step), None)


def _log(value: float) -> float:
    return math.log(value) if value > 0 else math.nan


def _se(low: float, high: float) -> float:
    return (high - low) / (2 * 1.96) if math.isfinite(low) and math.isfinite(high) else math.nan
