"""Eight healthy kinds of stream: what changes in runs that nothing is wrong with."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchmarks.fault_bank.pool import OTHER_POLICY, Draw, Step

__all__ = ["HEALTHY", "change", "plan_of"]

HEALTHY = {
    "plain": "nothing changes",
    "halved_batch": "from the middle on, half of the groups a step",
    "growing_lengths": "sequences whose own text grows to twice its length over the stream",
    "epochs": "the same 20 batches again and again; more of their tasks are solved each time",
    "learning_rate": "a warm-up from a fifth of the rate over 30 steps, then steps at 1.6 and 0.5 of it",
    "drifting_mixture": "from mostly text to mostly tool tasks",
    "another_policy": "another seed's policy",
    "slow_improvement": "a sixth of the right answers counts as wrong at first, none at the end",
}
"""Kind -> what it is."""


def plan_of(kind: str, num_steps: int) -> Draw:
    """How the stream of a healthy kind is drawn."""
    options: dict[str, Any] = {
        "plain": {"groups": 6},
        "halved_batch": {"groups": {0: 6, num_steps // 2: 3}},
        "epochs": {"period": 20},
        "drifting_mixture": {"mixture": lambda t: (0.15 + 0.4 * t, 0.05 + 0.2 * t, 0.8 - 0.6 * t)},
        "another_policy": {"policies": (OTHER_POLICY,)},
    }.get(kind, {})
    return Draw(num_steps, **options)


def change(kind: str, step: Step, part: float, rng: np.random.Generator) -> None:
    """Apply what a healthy kind changes at `part` (0 to 1) of the stream."""
    if kind == "growing_lengths":
        _lengthen(step, part, rng)
    elif kind == "epochs":
        _solve(step, 0.15 * (step.number // 20) / 6, rng)
    elif kind == "slow_improvement":
        wrong = rng.random(step.lengths.size) < (1 - part) / 6
        step.parts["correct"] = np.where(wrong, 0.0, step.parts["correct"])
    elif kind == "learning_rate":
        factor = (
            0.2 + 0.8 * min(1.0, step.number / 30) if step.number < 50 else 1.6 if step.number < 90 else 0.5
        )
        step.new = np.minimum(step.old + factor * (step.new - step.old), 0.0)
        step.after = np.minimum(step.new + factor * (step.pool["later2"] - step.pool["later1"]), 0.0)
        step.rate *= factor


def _solve(step: Step, fraction: float, rng: np.random.Generator) -> None:
    right = rng.random(step.lengths.size) < fraction
    step.parts["correct"] = np.where(right, 1.0, step.parts["correct"])


def _lengthen(step: Step, part: float, rng: np.random.Generator) -> None:
    """Repeat a growing share of the policy's tokens, each once, with its columns."""
    repeat = 1 + (step.own & (rng.random(step.own.size) < part)).astype(np.int64)
    rows = np.repeat(step.rows, repeat)
    for name in ("own", "tool_tokens", "rollout", "old", "new", "after", "ref", "entropy"):
        setattr(step, name, np.repeat(getattr(step, name), repeat))
    step.pool = {name: np.repeat(values, repeat) for name, values in step.pool.items()}
    step.lengths = np.bincount(rows, minlength=step.lengths.size)
