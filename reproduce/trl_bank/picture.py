"""The picture of the demo, docs/demo.png: the run that meets stale rollouts beside the same run without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from reproduce.charts import plt, save
from reproduce.collapse_bank.events import smoothed
from reproduce.trl_bank.outcomes import TrlOutcome, load_outcomes
from reproduce.trl_bank.recording import folder_of
from trimtab.errors import RunError
from trimtab.report.series_arrays import read_series
from trimtab.training.demo import SEED

__all__ = ["draw"]

COLOURS = {"none": "#0f7c7c", "stale": "#c2410c"}
LABELS = {"none": "the same run without the fault", "stale": "rollouts grow up to 8 updates old"}
SERIES = (
    ("mismatch/p95", "post_tool", "distance from the rollouts after a tool result: p95 of |log pi/mu|, nats"),
    ("mismatch/sequence_ess_frac", "all", "sequence ESS, fraction of the batch"),
)


def draw(store: Path, path: Path) -> None:
    """Draw reward, post-tool tail and sequence ESS of both runs; raises RunError when one is missing."""
    outcomes = {one.run.cause: one for one in load_outcomes(store) if one.run.seed == SEED}
    if not {"none", "stale"} <= set(outcomes):
        raise RunError(f"{store} lacks a run of seed {SEED}: record none and stale with --run")
    fig, axes = plt.subplots(3, 1, figsize=(9, 6), sharex=True)
    for arm in ("none", "stale"):
        rewards = np.array(outcomes[arm].run.rewards)
        steps = np.arange(1, rewards.size + 1)
        axes[0].plot(steps, rewards, color=COLOURS[arm], lw=0.6, alpha=0.35)
        axes[0].plot(steps, smoothed(rewards), color=COLOURS[arm], lw=1.8, label=LABELS[arm])
        series = read_series(folder_of(store, arm, SEED))
        for ax, (key, name, _) in zip(axes[1:], SERIES, strict=True):
            line = series[key, name]
            ax.plot(line.steps, line.values, color=COLOURS[arm], lw=1.2)
    titles = ["reward, and its mean of 8 steps", *(title for _, _, title in SERIES)]
    for ax, title in zip(axes, titles, strict=True):
        ax.set_title(title, loc="left", fontsize=10)
    axes[0].set_ylim(0, 1.02)
    axes[1].set_yscale("log")
    axes[2].set_ylim(0, 1.02)
    axes[2].set_xlabel("optimizer step")
    _mark(axes, outcomes["stale"])
    axes[0].legend(loc="lower left", frameon=False, fontsize=9)
    save(fig, path)


def _mark(axes: Any, broken: TrlOutcome) -> None:
    """Draw the fault, the first alarm after it and the loss of the reward."""
    run = broken.run
    start = run.fault_step or 0
    alarm = next((one.step for one in run.alarms if one.step >= start), None)
    marks = [
        (run.fault_step, f"fault\n{run.fault_step}", "#555555", "--"),
        (alarm, f"first alarm\n{alarm}", "#b91c1c", "-"),
        (run.event, f"reward lost\n{run.event}", "black", ":"),
    ]
    for step, text, colour, style in marks:
        if step is not None:
            for ax in axes:
                ax.axvline(step, color=colour, lw=1.1, ls=style)
            axes[0].annotate(
                text, (step, 1.03), xycoords=("data", "axes fraction"), ha="center", fontsize=9, color=colour
            )
