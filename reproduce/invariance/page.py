"""The section of docs/reference/ppo-ewma-results.md between its marks: figure and tables, made from a bank, nothing typed by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reproduce.invariance.arms import ARMS, BATCH, CHECKPOINT, FACTORS, UPDATES, Cell, settings_of
from reproduce.invariance.claims import papers_table
from reproduce.invariance.figures import CAPTION, draw
from reproduce.invariance.intervals import Interval, interval
from reproduce.invariance.merit import curves, figures_of, noise_scale, tables
from reproduce.invariance.store import load_bank
from reproduce.pilot.tables import table
from trimtab.errors import RunError

__all__ = ["BEGIN", "END", "check_page", "write_page"]

BEGIN, END = "<!-- begin: written by reproduce/ppo_ewma.py -->", "<!-- end: ppo_ewma -->"
EMPTY = f"# Papers: what they say, what we see\n\n## PPO-EWMA\n\n{BEGIN}\n{END}\n"
PICTURE = "ppo-ewma.png"


def check_page(page: Path) -> None:
    """RunError unless the page is new or has both marks, once and in order: other words are never overwritten."""
    if page.is_dir():
        raise RunError(f"{page} is a folder; give a file for the page")
    if not page.exists():
        return
    text = page.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise RunError(f"{page} has not one pair of the marks {BEGIN} and {END}; restore them, or give another --page")  # fmt: skip


def write_page(bank: Path, page: Path) -> dict[str, float | int | None]:
    """Replace what is between the marks (a new page if there is none), draw the figure in the folder of its stem."""
    check_page(page)
    runs = load_bank(bank)
    pictures = page.with_suffix("")
    pictures.mkdir(parents=True, exist_ok=True)
    draw(runs, pictures / PICTURE)
    shown = f"![Reward by episodes at three batch sizes]({pictures.name}/{PICTURE})\n\n*{CAPTION}*"
    body = "\n\n".join(
        [papers_table(runs), shown, spread_table(runs), count_table(runs), settings_table(runs)]
    )
    text = page.read_text() if page.exists() else EMPTY
    head, _, rest = text.partition(BEGIN)
    half = page.with_name(page.name + ".part")
    half.write_text(f"{head}{BEGIN}\n\n{body}\n\n{END}{rest.partition(END)[2]}")
    half.replace(page)
    return figures_of(runs)


def spread_table(runs: Sequence[dict[str, Any]]) -> str:
    """The figure of merit of each arm."""
    head = ["arm", "seeds", "spread over batch sizes, of a seed", "that noise alone would give", "spread of the mean curves",
            "that noise alone would give", "spread of the areas", "p of no effect"]  # fmt: skip
    return table(head, [[_cell(value) for value in row] for row in tables(runs)])


def count_table(runs: Sequence[dict[str, Any]]) -> str:
    """The spread at each count of episodes, and paired differences of it: where in the run the batch sizes part."""
    found = curves(runs)
    counts = [
        str(CHECKPOINT * at)
        for at in range(1, max((values.shape[2] for values in found.values()), default=1))
    ]
    each = {arm: np.ptp(values[:, :, 1:], axis=1) for arm, values in found.items()}  # (S, K)
    pairs = [(wide, "ewma_rules") for wide in each if wide != "ewma_rules" and "ewma_rules" in each]
    each |= {f"{wide} less {narrow}": each[wide] - each[narrow] for wide, narrow in pairs}
    rows = [[name, *(_cell(interval(column)) for column in values.T)] for name, values in each.items()]
    return table(["spread after so many episodes", *counts], rows)


def settings_table(runs: Sequence[dict[str, Any]]) -> str:
    """A row a run's kind: what was set, and whether the clip and the batch were in the regime that matters."""
    rows = []
    for arm in ARMS:
        for factor in FACTORS:
            mine = [run for run in runs if (run["arm"], run["factor"]) == (arm, factor)]
            if not mine:
                continue
            set_ = settings_of(Cell(arm, factor, 0))
            mass = set_["ewma_centre_of_mass"]
            rows.append([
                f"{arm} x{factor:g}", f"{round(BATCH * factor)} / {round(BATCH * factor) // UPDATES}", f"{set_['learning_rate']:.3g}",
                f"{set_['adam_beta1']:.4g}, {set_['adam_beta2']:.6g}", "" if mass is None else f"{mass:g}",
                _mean([run["clipped"][0] for run in mine]), _mean([_average(run["clipped"]) for run in mine]), _mean([run["curve"][-1]["reward"] for run in mine]),
                _mean([run["cpu_s"] for run in mine], 0),
            ])  # fmt: skip
    head = ["run", "episodes of an iteration / of a step", "learning rate", "Adam betas", "centre of mass, steps", f"share of tokens clipped, first {CHECKPOINT} episodes", "in the whole run",
            "reward at the end", "CPU s of a run"]  # fmt: skip
    scale = noise_scale(runs)
    told = (
        "cannot be separated from the noise"
        if math.isnan(scale)
        else f"is about {scale:.0f} episodes of a step"
    )
    return f"{table(head, rows)}\n\nThe gradient's noise scale over the first {CHECKPOINT} episodes, below which the rules hold, {told}."


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _mean(values: Sequence[float], digits: int = 3) -> str:
    return f"{_average(values):.{digits}f}"


def _cell(value: object) -> str:
    if isinstance(value, Interval) or not isinstance(value, float):
        return str(value)
    return "undecided" if math.isnan(value) else f"{value:.3f}"
