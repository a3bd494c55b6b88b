"""The three figures, with bands over seeds: the tail by slice, its whole distribution, and the averages beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from reproduce.charts import band, on_grid, save
from reproduce.pilot.reading import Outcome
from trimtab.report.html.run_payload import build_payload

__all__ = ["CAPTIONS", "band", "draw_averages", "draw_cdfs", "draw_tails", "save"]

ARMS = (
    "constrained",
    "open",
    "open_in_distribution",
    "open_no_drift",
    "drift_aware",
    "constrained_fast",
    "open_fast",
    "open_hot",
)
GROUPS = {
    "learning rate 2e-4": ("constrained", "open", "open_in_distribution", "open_no_drift", "drift_aware"),
    "learning rate 1e-3": ("constrained_fast", "open_fast"),
    "learning rate 2e-3, and frozen": ("constrained_hot", "open_hot", "frozen"),
}  # fmt: skip
TEXT, POST = "#4c6a92", "#c0504d"
COLOURS = ("#2b2b2b", "#c0504d", "#d9932f", "#5b8c5a", "#7a5ba6")
STYLES = {"early": (":", 1.3, 1.0), "middle": ("-", 4.0, 0.3), "late": ("-", 1.2, 1.0)}
"""Line, width and strength of each fifth: the middle and the last often coincide, so one is broad and pale under the other."""

NATS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20)
LEAST_NORM = 0.02
WIDE = 3.0  # largest over least seed
BAND = "Line: median over seeds; band: from the least to the largest seed"
CAPTIONS = {
    "tails": (
        "The tail by slice",
        f"p95 of |drift| (nats, log scale) of text tokens (blue) and post-tool tokens (red) in each window, by step. {BAND}, "
        "or, where that would hide the seeds, a thin line for each; the title says how many. Triangles: "
        "steps of the collapses, a seed each. The lines of post-tool tokens begin later because their first window takes 10 to 20 steps to fill. Arms that are not drawn here "
        "are rows of the table below.",
    ),
    "cdf": (
        "The whole distribution",
        "Share of tokens whose |drift| is above the value on the axis (both scales log), text in blue and post-tool in red; dotted, "
        f"broad and pale, full: the first, the middle and the last fifth of the run (the last two coincide in most arms: the growth is over by the middle). {BAND}; the title says how many.",
    ),
    "averages": (
        "What a dashboard shows of the same runs",
        f"Mean reward, mean KL to the start (k3, nats), mean entropy (nats) and gradient norm, in windows; columns are learning rates. {BAND} "
        f"(seeds in brackets). Values of the norm under {LEAST_NORM} are drawn at that line; how many is written in the panel. The frozen "
        "policy's KL is zero and not drawn.",
    ),
}


def draw_tails(runs: Sequence[Outcome], path: Path) -> None:
    """p95 of |drift|, text and post-tool, one panel an arm."""
    fig, panels = _panels(runs)
    for ax, mine in panels:
        slices = {name: [_series(run, "drift/p95", name) for run in mine] for name in ("text", "post_tool")}
        wide = len(mine) > 3 or any(_wide(lines) for lines in slices.values())
        for (name, lines), colour in zip(slices.items(), (TEXT, POST), strict=True):
            band(ax, lines, colour, name.replace("_", "-"), seeds=wide)
        ends = [run.collapsed for run in mine if run.collapsed is not None]
        ax.plot(
            ends, [0.97] * len(ends), "kv", ms=5, alpha=0.6, transform=ax.get_xaxis_transform(), ls="none"
        )
        ax.set(yscale="log", xlabel="step")
        ax.set_yticks(NATS, [f"{value:g}" for value in NATS])
        ax.set_yticks([], minor=True)
        ax.grid(axis="y", lw=0.4, alpha=0.5)
    _legend(fig, panels)
    save(fig, path, ylabel="p95 |drift|, nats")


def draw_cdfs(runs: Sequence[Outcome], path: Path) -> None:
    """Share of tokens with |drift| above a value, early, middle and late."""
    fig, panels = _panels(runs)
    grid = np.geomspace(1e-3, 20, 120)
    for ax, mine in panels:
        found: dict[tuple[str, str], list[np.ndarray]] = {}
        for run in mine:
            for curve in build_payload([run.view])["runs"][0]["cdf"]:
                x, above = np.asarray(curve["x"]), 1 - np.asarray(curve["y"])
                line = np.interp(np.log(grid), np.log(x[x > 0]), above[x > 0]) if (x > 0).any() else 0 * grid
                found.setdefault((curve["slice"], curve["window"]), []).append(line)
        for name, colour, label in (("text", TEXT, "text"), ("post_tool", POST, "post-tool")):
            for window, (style, width, alpha) in STYLES.items():
                if lines := found.get((name, window)):
                    low, high = np.min(lines, axis=0), np.max(lines, axis=0)
                    ax.fill_between(grid, low, high, color=colour, alpha=0.12, lw=0)
                    line = np.median(lines, axis=0)
                    ax.plot(grid, line, color=colour, ls=style, lw=width, alpha=alpha, label=f"{label}, {window}")  # fmt: skip
        ax.set(xscale="log", yscale="log", xlim=(1e-3, 20), ylim=(1e-3, 1), xlabel="|drift|, nats")
    _legend(fig, panels)
    save(fig, path, ylabel="share of tokens above")


def draw_averages(runs: Sequence[Outcome], path: Path) -> None:
    """What a dashboard shows of the same runs: reward, mean KL, entropy, gradient norm."""
    wanted = (("reward", "mean reward", "linear"), ("kl", "mean KL k3, nats", "log"), ("entropy", "entropy, nats", "log"), ("grad_norm", "gradient norm", "log"))  # fmt: skip
    fig, axes = plt.subplots(4, 3, figsize=(13, 11.5), sharey="row", sharex="col")
    for row, (name, label, scale) in zip(axes, wanted, strict=True):
        for ax, (title, arms) in zip(row, GROUPS.items(), strict=True):
            low = 0
            for colour, arm in zip(COLOURS, arms, strict=False):
                mine = [_series(run, f"aggregate/{name}", "all") for run in runs if run.arm == arm]
                if name == "grad_norm":
                    low += sum(int((values < LEAST_NORM).sum()) for _, values in mine)
                    mine = [(steps, np.maximum(values, LEAST_NORM)) for steps, values in mine]
                if name != "kl" or arm != "frozen":
                    band(ax, mine, colour, f"{arm} ({len(mine)})")
            ax.set(yscale=scale)
            if low:
                ax.text(
                    0.02,
                    0.03,
                    f"{low} windows under {LEAST_NORM}",
                    transform=ax.transAxes,
                    fontsize=8,
                    color="grey",
                )
            if name == "reward":
                ax.set(title=title, ylim=(0, 1.35), yticks=(0, 0.25, 0.5, 0.75, 1))
                if ax.get_legend_handles_labels()[0]:
                    ax.legend(frameon=False, fontsize=8, ncols=2, loc="upper right")
            if name == "grad_norm":
                ax.set(xlabel="step")
        row[0].set(ylabel=label)
    save(fig, path)


def _panels(runs: Sequence[Outcome]) -> tuple[Any, list[tuple[Any, list[Outcome]]]]:
    """A figure with one panel for each arm of `ARMS` that was recorded."""
    arms = [(arm, mine) for arm in ARMS if (mine := [run for run in runs if run.arm == arm])]
    columns = min(4, max(1, len(arms)))
    rows = -(-max(1, len(arms)) // columns)
    fig, axes = plt.subplots(rows, columns, figsize=(3.7 * columns, 3.5 * rows), sharey=True, squeeze=False)
    flat = list(axes.flat)
    for ax in flat[len(arms) :]:
        ax.set_visible(False)
    for ax, (arm, mine) in zip(flat, arms, strict=False):
        ax.set_title(f"{arm} ({len(mine)} seed{'s' * (len(mine) > 1)})", fontsize=10)
    return fig, [(ax, mine) for ax, (_, mine) in zip(flat, arms, strict=False)]


def _series(run: Outcome, key: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    found = [r for r in run.view.series(key, name) if r.status == "ok"]
    return np.array([r.step for r in found], float), np.array([r.value for r in found], float)


def _wide(lines: Sequence[tuple[np.ndarray, np.ndarray]]) -> bool:
    """Would a band hide the seeds: is the largest more than `WIDE` times the least in a quarter of the run?"""
    lines = [line for line in lines if line[0].size > 1]
    if not lines:
        return False
    values = on_grid(lines)[1]
    return bool(np.mean(values.max(axis=0) > WIDE * values.min(axis=0)) > 0.25)


def _legend(fig: Any, panels: Sequence[tuple[Any, list[Outcome]]]) -> None:
    """One legend under the panels, of every line that is in any of them."""
    handles = {label: handle for ax, _ in panels for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}  # fmt: skip
    if handles:
        fig.legend(
            handles.values(), handles.keys(), frameon=False, ncols=len(handles), loc="outside lower center"
        )
