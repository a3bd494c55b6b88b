"""The gradient's variance by slice, from the controls of each run: pooled over batches, because one batch's share is 0 or 1 by turns.

Batches are measured every 20 steps, so half a run has three. A share is the ratio of sums, never a mean of ratios: a batch
of solved tasks has no advantages and no variance, and its ratio says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from reproduce.pilot.reading import Outcome

__all__ = ["growth_of_variance", "late_batches", "pooled", "share_less_one_batch", "share_of", "token_share"]

Row = dict[str, Any]


def late_batches(run: Outcome) -> list[Row]:
    """The batches of the second half that have post-tool tokens."""
    return [row for row in run.controls if row["step"] > _end(run) / 2 and row["n_post"] > 0]


def pooled(rows: Sequence[Row]) -> tuple[float, float]:
    """Summed variance of the post-tool part and of the text part of the per-trajectory gradient."""
    parts = [row["gradient_variance"] for row in rows]
    return math.fsum(p["post_tool"] for p in parts), math.fsum(p["text"] for p in parts)


def share_of(rows: Sequence[Row]) -> float:
    """Post-tool over post-tool and text, each summed over the batches; nan where neither varied."""
    post, text = pooled(rows)
    return post / (post + text) if post + text > 0 else math.nan


def token_share(rows: Sequence[Row]) -> float:
    """The post-tool tokens' share of the tokens of the same batches; nan for none."""
    post, text = sum(row["n_post"] for row in rows), sum(row["n_text"] for row in rows)
    return post / (post + text) if post + text else math.nan


def share_less_one_batch(rows: Sequence[Row]) -> list[float]:
    """The pooled share with each batch left out in turn; those that can be told."""
    left = [share_of([*rows[:at], *rows[at + 1 :]]) for at in range(len(rows))] if len(rows) > 1 else []
    return [share for share in left if math.isfinite(share)]


def growth_of_variance(run: Outcome) -> float:
    """Mean variance after a tool in the second half over that in the first; nan where a half has no batch with such tokens."""
    late = late_batches(run)
    early = [row for row in run.controls if row["step"] <= _end(run) / 2 and row["n_post"] > 0]
    if not late or not early or pooled(early)[0] <= 0:
        return math.nan
    return float(np.divide(pooled(late)[0] / len(late), pooled(early)[0] / len(early)))


def _end(run: Outcome) -> int:
    return int(run.view.steps[-1]["step"]) if run.view.steps else 0
