"""One figure an experiment: held-out score, reward, entropy, mismatch KL, gradient norm, first-order gap, with bands over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from reproduce.charts import Line, band, save
from reproduce.minirl.arms import Experiment
from reproduce.minirl.reading import WINDOW, Outcome

__all__ = ["CAPTION", "draw"]

COLOURS = ("#2b2b2b", "#c0504d", "#d9932f", "#4c6a92", "#5b8c5a")
PANELS = {
    "held_out": ("held-out score", "linear"),
    "reward": ("reward in training", "linear"),
    "entropy": ("entropy, nats", "log"),
    "mismatch_kl": ("KL(mu || pi_old), k3, nats", "log"),
    "grad_norm": ("gradient norm", "log"),
    "first_order_gap": ("first-order gap, p95", "log"),
}
SMOOTHED = (
    "reward",
    "entropy",
    "grad_norm",
)  # of one step; the others are windows of the watch, and held-out scores
CAPTION = (
    "Line: median over seeds; band: from the least to the largest seed. Horizontal: optimizer steps. Reward, entropy and gradient norm are trailing "
    f"means of {WINDOW} steps, the readings of the watch are its windows. Triangles in the second panel: steps of the collapses, a seed each. First-order gap: p95 over responses of "
    "|prod w - 1 - sum(w - 1)|, what the token-level objective leaves out of the sequence-level one; with one update a batch the last panel is the mismatch."
)


def draw(experiment: Experiment, runs: Sequence[Outcome], path: Path) -> None:
    """The arms that are judged."""
    fig, axes = plt.subplots(2, 3, figsize=(13, 7), sharex=True)
    arms = [name for name, arm in experiment.arms.items() if not arm.scan]
    for ax, (name, (label, scale)) in zip(axes.flat, _panels(runs).items(), strict=True):
        for colour, arm in zip(COLOURS, arms, strict=False):
            mine = [run for run in runs if run.arm == arm]
            lines = [line for line in (_line(run, name) for run in mine) if line is not None]
            if scale == "log":
                lines = [(steps[values > 0], values[values > 0]) for steps, values in lines]
            band(ax, lines, colour, f"{arm} ({len(mine)})")
            ends = [run.collapsed for run in mine if run.collapsed is not None]
            if name == "reward" and ends:
                place = {"transform": ax.get_xaxis_transform(), "ls": "none"}
                ax.plot(ends, [0.97] * len(ends), "v", color=colour, ms=5, alpha=0.7, **place)
        ax.set(title=label, yscale=scale)
    for ax in axes[1]:
        ax.set_xlabel("optimizer step")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    if handles:
        fig.legend(handles, labels, frameon=False, ncols=len(handles), loc="outside lower center")
    save(fig, path)


def _panels(runs: Sequence[Outcome]) -> dict[str, tuple[str, str]]:
    """With one update a batch pi_theta is pi_old, and there is no gap to draw."""
    if any(run.series["first_order_gap"][0].size for run in runs if "first_order_gap" in run.series):
        return PANELS
    rest = {name: own for name, own in PANELS.items() if name != "first_order_gap"}
    return {**rest, "mismatch_p99": ("p99 of |mismatch|, nats", "log")}


def _line(run: Outcome, name: str) -> Line | None:
    line = run.held_out if name == "held_out" else run.series.get(name)
    return _smooth(line) if line is not None and name in SMOOTHED else line


def _smooth(line: Line) -> Line:
    """Trailing means of `WINDOW` steps, which may hold fewer values (one batch for several steps)."""
    steps, values = line
    at = steps[steps >= WINDOW]
    return at, np.array([values[(steps > step - WINDOW) & (steps <= step)].mean() for step in at])
