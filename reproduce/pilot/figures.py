"""The three figures, with bands over seeds: the tail by slice, its whole distribution, and the averages beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from reproduce.pilot.reading import Outcome
from trimtab.report.payload import build_payload

__all__ = ["draw_averages", "draw_cdfs", "draw_tails"]

ARMS = ("constrained", "open", "open_in_distribution", "constrained_fast", "drift_aware", "open_hot")
AVERAGED = (*ARMS, "frozen")
TEXT, POST = "#4c6a92", "#c0504d"
SHADES = {"early": 0.35, "middle": 0.65, "late": 1.0}


def draw_tails(runs: Sequence[Outcome], path: Path) -> None:
    """p95 of |drift|, text and post-tool, one panel an arm: median over seeds, band from the least to the largest."""
    fig, panels = _panels(runs)
    for ax, (arm, mine) in panels:
        for name, colour, label in (("text", TEXT, "text"), ("post_tool", POST, "post-tool")):
            _band(ax, [_series(run, "drift/p95", name) for run in mine], colour, label)
        ax.set(
            yscale="log",
            title=f"{arm} ({len(mine)} seed{'s' * (len(mine) > 1)})",
            xlabel="step",
            ylabel="p95 |drift|, nats",
        )
    for ax, _ in panels[:1]:
        ax.legend(frameon=False)
    _save(fig, path)


def draw_cdfs(runs: Sequence[Outcome], path: Path) -> None:
    """Share of tokens with |drift| above tau, early, middle and late; a line a seed."""
    fig, panels = _panels(runs)
    for ax, (arm, mine) in panels:
        for run in mine:
            for curve in build_payload([run.view])["runs"][0]["cdf"]:
                if curve["slice"] in ("text", "post_tool"):
                    colour = TEXT if curve["slice"] == "text" else POST
                    x, y = np.asarray(curve["x"]), 1 - np.asarray(curve["y"])
                    ax.plot(x[x > 0], y[x > 0], color=colour, alpha=SHADES[curve["window"]], lw=0.8)
        ax.set(xscale="log", yscale="log", xlim=(1e-3, 20), ylim=(1e-3, 1), title=arm, xlabel="|drift|, nats",
               ylabel="share above")  # fmt: skip
    _save(fig, path)


def draw_averages(runs: Sequence[Outcome], path: Path) -> None:
    """What a dashboard shows of the same runs: reward, mean KL, gradient norm."""
    wanted = (
        ("reward", "mean reward", "linear"),
        ("kl", "mean KL k3, nats", "log"),
        ("grad_norm", "gradient norm", "log"),
    )
    fig, axes = plt.subplots(1, 3, figsize=(13, 3.8))
    colours = plt.get_cmap("tab10")
    for ax, (name, label, scale) in zip(axes, wanted, strict=True):
        for i, arm in enumerate(AVERAGED):
            mine = [_series(run, f"aggregate/{name}", "all") for run in runs if run.arm == arm]
            if mine:
                _band(ax, mine, colours(i), arm)
        ax.set(yscale=scale, xlabel="step", ylabel=label)
    handles, labels = axes[0].get_legend_handles_labels()
    if handles:
        fig.legend(handles, labels, frameon=False, ncols=len(labels), loc="lower center", fontsize=8)
    _save(fig, path, below=0.07)


def _panels(runs: Sequence[Outcome]) -> tuple[Any, list[tuple[Any, tuple[str, list[Outcome]]]]]:
    arms = [(arm, mine) for arm in ARMS if (mine := [run for run in runs if run.arm == arm])]
    columns = min(3, max(1, len(arms)))
    rows = -(-max(1, len(arms)) // columns)
    fig, axes = plt.subplots(rows, columns, figsize=(4.4 * columns, 3.4 * rows), sharey=True, squeeze=False)
    flat = list(axes.flat)
    for ax in flat[len(arms) :]:
        ax.set_visible(False)
    return fig, list(zip(flat, arms, strict=False))


def _series(run: Outcome, key: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    found = [r for r in run.view.series(key, name) if r.status == "ok"]
    return np.array([r.step for r in found], float), np.array([r.value for r in found], float)


def _band(ax: Any, lines: Sequence[tuple[np.ndarray, np.ndarray]], colour: Any, label: str) -> None:
    lines = [line for line in lines if line[0].size > 1]
    if not lines:
        return
    start, stop = max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines)
    grid = np.linspace(start, stop, 60)
    values = np.array([np.interp(grid, x, y) for x, y in lines])
    ax.fill_between(grid, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.2, lw=0)
    ax.plot(grid, np.median(values, axis=0), color=colour, lw=1.4, label=label)


def _save(fig: Any, path: Path, below: float = 0.0) -> None:
    for ax in fig.axes:
        ax.spines[["top", "right"]].set_visible(False)
    fig.tight_layout(rect=(0, below, 1, 1))
    fig.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(fig)
