"""The figure: reward over episodes at each batch size, a panel an arm, and the spread of each arm beside what noise gives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from reproduce.charts import band, save
from reproduce.invariance.arms import ARMS, BATCH, CHECKPOINT, FACTORS
from reproduce.invariance.merit import curves, noise_range, spreads
from reproduce.pilot.figures import COLOURS

__all__ = ["CAPTION", "draw"]

CAPTION = (
    "Reward on held-out prompts by episodes learnt from. Line: median over seeds; band: from the least to the largest seed. Last panel: largest "
    "less smallest reward over the batch sizes at equal episodes, mean over the run; a dot a seed, a bar for the mean; dashes: what noise "
    "alone would give."
)


def draw(runs: Sequence[dict[str, Any]], path: Path) -> None:
    """Four panels of curves and one of spreads."""
    found = curves(runs)
    fig, axes = plt.subplots(1, len(ARMS) + 1, figsize=(15, 3.6), gridspec_kw={"width_ratios": [1] * len(ARMS) + [0.9]})  # fmt: skip
    for ax, arm in zip(axes, ARMS, strict=False):
        _curves(ax, found.get(arm))
        ax.set(title=arm, ylim=(0, 1.02), xlabel="episodes")
    if axes[0].get_legend_handles_labels()[0]:
        axes[0].legend(frameon=False, fontsize=8, loc="lower right")
    _spreads(axes[-1], found)
    save(fig, path, ylabel="reward")


def _curves(ax: Any, values: np.ndarray | None) -> None:
    if values is None:
        return
    episodes = CHECKPOINT * np.arange(values.shape[2], dtype=float)
    for at, (factor, colour) in enumerate(zip(FACTORS, COLOURS, strict=False)):
        lines = [(episodes, values[seed, at]) for seed in range(values.shape[0])]
        band(ax, lines, colour, f"x{factor:g}: {round(BATCH * factor)} episodes")


def _spreads(ax: Any, found: dict[str, np.ndarray]) -> None:
    for at, (_, values) in enumerate(found.items()):
        each = spreads(values)
        ax.plot([at] * len(each), each, "o", ms=4, color=COLOURS[0], alpha=0.7)
        ax.plot([at - 0.25, at + 0.25], [each.mean()] * 2, color=COLOURS[1], lw=2)
        ax.plot([at - 0.3, at + 0.3], [noise_range(values)] * 2, color="grey", ls="--", lw=1)
    ax.set_xticks(range(len(found)), list(found), rotation=25, fontsize=8)
    ax.set(title="spread over batch sizes", ylim=(0, None))
