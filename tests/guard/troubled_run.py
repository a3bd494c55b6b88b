"""Runs that meet trouble at a known step, given to `open_run` as arrays, and levers that remember what was set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trimtab.guard import LEVERS

ROWS, LENGTH, ONSET = 24, 24, 25
TOOL, AFTER = slice(8, 12), slice(12, None)


def step_columns(step: int, trouble: str, *, until: int = 10_000, fresh: bool = False) -> dict[str, Any]:
    """Columns of a step: from `ONSET` to `until`, `trouble` moves one pair of policies apart after a tool result.

    `fresh`: the trainer leaves old rollouts out, which is the cure of "stale".
    """
    rng = np.random.default_rng([11, step])
    mu = np.log(rng.uniform(1e-4, 1e-3, (ROWS, LENGTH)))
    on = ONSET <= step < until and not (fresh and trouble == "stale")
    wide = np.full((ROWS, LENGTH), 0.01)
    wide[:, AFTER] = 1.0
    small = rng.normal(0.0, 0.01, (2, ROWS, LENGTH))
    far = rng.normal(0.0, wide)
    old = mu + (far if on and trouble == "mismatch" else small[0])
    new = old + (far if on and trouble in ("stale", "update") else small[1])
    mask = np.ones((ROWS, LENGTH), bool)
    mask[:, TOOL] = False
    age = 8 if on and trouble == "stale" else 1
    return {
        "loss_mask": mask, "tool_tokens": ~mask, "rollout_logprobs": mu, "old_logprobs": old, "logprobs": new,
        "policy_version": np.full((ROWS, LENGTH), step - age), "current_version": step,
    }  # fmt: skip


class Levers:
    """Controls of a trainer without weights: values that were set, in their order."""

    def __init__(self, **slices: tuple[str, ...]) -> None:
        self.slices = slices or dict.fromkeys(LEVERS, ("all", "post_tool"))
        self.values: dict[tuple[str, str], float] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.stopped = False

    def levers(self) -> dict[str, tuple[str, ...]]:
        return self.slices

    def get(self, lever: str, slice_name: str = "all") -> float:
        return self.values.get((lever, slice_name), LEVERS[lever].neutral)

    def set(self, lever: str, slice_name: str, value: float) -> None:
        self.values[lever, slice_name] = value
        self.calls.append((lever, slice_name, value))

    def save(self, folder: Path) -> None:
        (folder / "state").write_text("x")

    def restore(self, folder: Path) -> None:
        self.calls.append(("restore", folder.name))

    def stop(self) -> None:
        self.stopped = True


class Kept:
    """A ring in memory: the steps kept, each with its verdict."""

    def __init__(self) -> None:
        self.steps: dict[int, str] = {}
        self.restored: list[int] = []
        self.suspected: list[tuple[int, int | None]] = []

    def keep(self, step: int, verdict: str, controls: Levers) -> None:
        self.steps[step] = verdict

    def last_stable(self, before_step: int) -> int | None:
        return max((s for s, v in self.steps.items() if s < before_step and v == "stable"), default=None)

    def suspect(self, since: int, until: int | None = None) -> None:
        self.suspected.append((since, until))

    def restore(self, step: int, controls: Levers) -> None:
        self.restored.append(step)
        self.steps = {s: v for s, v in self.steps.items() if s <= step}
