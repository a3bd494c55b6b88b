"""One figure an experiment: held-out score, reward, entropy, mismatch KL, gradient norm, first-order gap, with bands over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from reproduce.charts import Line, band, save
from reproduce.minirl.arms import Experiment
from reproduce.minirl.reading import Outcome

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
SMOOTH = 10  # values of a trailing mean; the held-out score is drawn as it is
CAPTION = (
    "Line: median over seeds; band: from the least to the largest seed. Horizontal: optimizer steps. All but the held-out score are trailing means of "
    f"{SMOOTH} values. Triangles in the second panel: steps of the collapses, a seed each. First-order gap: p95 over responses of "
    "|prod w - 1 - sum(w - 1)|, what the token-level objective leaves out of the sequence-level one."
)


def draw(experiment: Experiment, runs: Sequence[Outcome], path: Path) -> None:
    """The arms that are judged."""
    fig, axes = plt.subplots(2, 3, figsize=(13, 7), sharex=True)
    arms = [name for name, arm in experiment.arms.items() if not arm.scan]
    for ax, (name, (label, scale)) in zip(axes.flat, PANELS.items(), strict=True):
        for colour, arm in zip(COLOURS, arms, strict=False):
            mine = [run for run in runs if run.arm == arm]
            lines = [
                run.held_out if name == "held_out" else _smooth(run.series[name])
                for run in mine
                if name == "held_out" or name in run.series
            ]
            if scale == "log":
                lines = [(steps[values > 0], values[values > 0]) for steps, values in lines]
            band(ax, lines, colour, f"{arm} ({len(mine)})")
            ends = [run.collapsed for run in mine if run.collapsed is not None]
            if name == "reward" and ends:
                ax.plot(
                    ends,
                    [0.97] * len(ends),
                    "v",
                    color=colour,
                    ms=5,
                    alpha=0.7,
                    transform=ax.get_xaxis_transform(),
                    ls="none",
                )
        ax.set(title=label, yscale=scale)
    for ax in axes[1]:
        ax.set_xlabel("optimizer step")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    if handles:
        fig.legend(handles, labels, frameon=False, ncols=len(handles), loc="outside lower center")
    save(fig, path)


def _smooth(line: Line) -> Line:
    steps, values = line
    if values.size < SMOOTH:
        return line
    return steps[SMOOTH - 1 :], np.convolve(values, np.ones(SMOOTH) / SMOOTH, mode="valid")
