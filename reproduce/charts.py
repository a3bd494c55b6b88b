"""What the figures of this folder share: bands over seeds, and saving."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

__all__ = ["Line", "band", "on_grid", "save"]

Line = tuple[np.ndarray, np.ndarray]
"""Steps and values of one seed."""


def band(ax: Any, lines: Sequence[Line], colour: Any, label: str, seeds: bool = False) -> None:
    """Over the steps that all seeds have; with `seeds` a thin line each, in place of a band too wide to see them in."""
    lines = [line for line in lines if line[0].size > 1]
    if not lines:
        return
    grid, values = on_grid(lines)
    low, high = values.min(axis=0), values.max(axis=0)
    if seeds:
        for x, y in lines:
            ax.plot(x, y, color=colour, lw=0.6, alpha=0.5)
    else:
        ax.fill_between(grid, low, high, color=colour, alpha=0.18, lw=0)
    ax.plot(grid, np.median(values, axis=0), color=colour, lw=1.4, label=label)


def on_grid(lines: Sequence[Line]) -> tuple[np.ndarray, np.ndarray]:
    """60 steps all lines cover, and each line there."""
    grid = np.linspace(max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines), 60)
    return grid, np.array([np.interp(grid, x, y) for x, y in lines])


def save(fig: Any, path: Path, ylabel: str = "") -> None:
    """One file, the same for the same data; `ylabel` on the first column."""
    for ax in fig.axes:
        ax.spines[["top", "right"]].set_visible(False)
        if ylabel and ax.get_subplotspec().is_first_col():
            ax.set_ylabel(ylabel)
    fig.set_layout_engine("constrained")
    fig.savefig(path, dpi=100, metadata={"Software": None})
    plt.close(fig)
