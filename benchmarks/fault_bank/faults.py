# ruff: noqa: ARG001 (every fault has the same arguments)
"""Thirteen kinds of fault, applied to the columns of healthy steps as the real fault would change them.

Where a fault is an approximation its docstring says so. `strength` is 1 or a third; `age` counts steps since the onset, from 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from benchmarks.fault_bank.pool import GENERATIONS, Step

__all__ = ["FAULTS", "Fault", "Spot"]

RANKS = 3


@dataclass(frozen=True)
class Spot:
    """Where and how a fault of one stream sits: a tool, a rank, and a coin for kinds that have two forms."""

    strength: float
    tool: str
    rank: int
    coin: bool


@dataclass(frozen=True)
class Fault:
    """A kind of fault. `cause`: name of the right hypothesis. `sits_in`: what the worst slice should name, if it has one."""

    cause: str
    apply: Callable[[Step, Spot, int, np.random.Generator], None]
    sits_in: str = ""
    ranks: int = 1


def engine_mismatch(step: Step, spot: Spot, age: int, rng: np.random.Generator) -> None:
    """The trainer scores with weights of 3 bits (5 at a third). Tokens are those of the sampler, so this is the real fault."""
    _shift(step, step.pool["coarse" if spot.strength == 1 else "fine"])


def wrong_temperature(step: Step, spot: Spot, age: int, rng: np.random.Generator) -> None:
    """The trainer divides logits by 1.3 (1.1), the sampler does not: recorded from the logits. The reference is shifted as the policy is."""
    name = "hot" if spot.strength == 1 else "warm"
    _shift(step, step.pool[name])
    step.ref += np.where(step.own, step.pool[name], 0.0)
    step.ref = np.minimum(step.ref, 0.0)
    step.entropy = step.entropy + np.where(step.own, step.pool[f"{name}_entropy"], 0.0)


def off_by_one(step: Step, spot: Spot, age: int, rng: np.random.Generator) -> None:
    """The sampler's log-probabilities come one token late or early, in every sequence (in one of three)."""
    hit = rng.random(step.lengths.size) < spot.strength
    for row, tokens in enumerate(_own_by_sequence(step)):
        if hit[row] and tokens.size > 1:
            step.rollout[tokens] = np.roll(step.rollout[tokens], 1 if spot.coin else -1)


def retokenisation(step: Step, spot: Spot, age: int, rng: np.random.Generator) -> None:
    """Text is encoded again to other tokens at one point of 60 % (20 %) of the sequences; the trainer scores those.

    An approximation: the log-probability there is half of that of a random other token, since a lab of letters has no second encoding.
    """
    hit = rng.random(step.lengths.size) < 0.6 * spot.strength
    for row, tokens in enumerate(_own_by_sequence(step)):
        if hit[row] and tokens.size > 2:
            at = tokens[1 + int(rng.integers(tokens.size - 1))]
            other = 0.5 * step.pool["other"][at]
            for name in ("old", "new", "after", "ref"):
                column = getattr(step, name)
                column[at] = min(0.0, column[at] - step.pool["logprob"][at] + other)


def wrong_loss_mask(step: Step, spot: Spot, age: int, rng: np.random.Generator) -> None:
    """Tokens of tools are trained on (their rollout log-probability is the 0 that engines fill in), or answers after a tool are not."""
    hit = rng.random(step.lengths.size) < spot.strength
    inside = hit[step.rows]
    if spot.coin:
        step.own |= step.tool_tokens & inside
    else:
        for row, tokens in enumerate(_own_by_sequence(step)):
            spoken = np.flatnonzero(step.tool_tokens & (step.rows == row))
            if hit[row] and spoken.size:
                step.own[tokens[tokens > spoken[-1]]] = False


def stale_rollouts(step: Step, spot: Spot, age: int, rng: np.random.Generator) -> None:
    """Rollouts grow 8 (3) updates old over as many steps: scored by the weights of that later update, as recorded."""
    lag = min(1 + age, 8 if spot.strength == 1 else 3)
    step.age[:] = lag
    moved = step.pool[f"later{max(known for known in (1, 2, 3, 8) if known <= lag)}"]
    _move(step, moved)


def stale_rank(step: Step, spot: Spot, age: int, rng: np.random.Generator) -> None:
    """The sampler of one rank keeps weights of 8 (3) updates ago and says that it has the newest."""
    behind = step.pool["later8" if spot.strength == 1 else "later3"]
    there = (rank_of(step) == spot.rank)[step.rows] & step.own
    for name in ("old", "new", "after"):
        setattr(
            step, name, np.where(there, np.minimum(getattr(step, name) + behind, 0.0), getattr(step, name))
        )


def support_lost(step: Step, spot: Spot, age: int, rng: np.random.Generator) -> None:
    """After the results of one tool the policy writes what the reference hardly supports, and moves further there at every update.

    An approximation: 40 % of those tokens lose exponential(6 nats) of reference log-probability (2 at a third), the policy's own moves
    there get noise of 0.8 nats (0.27), and entropy rises by a half. It grows over five steps.
    """
    grown = spot.strength * min(1.0, (age + 1) / 5)
    there = step.after_tool(spot.tool)
    lost = there & (rng.random(there.size) < 0.4)
    size = int(lost.sum())
    step.ref[lost] = np.minimum(step.ref[lost] - rng.exponential(6.0 * grown, size), 0.0)
    noise = rng.normal(0.0, 0.8 * grown, size)
    for name, factor in (("new", 1.0), ("after", 2.0)):
        column = getattr(step, name)
        column[lost] = np.minimum(column[lost] + factor * noise, 0.0)
    step.entropy[there] += 0.5 * grown


def update_too_large(step: Step, spot: Spot, age: int, rng: np.random.Generator) -> None:
    """Updates are 25 (8.3) times as large. An approximation: the recorded change of each log-probability is multiplied.

    The learning rate is logged and shows it in half of the streams; in the others the optimizer's state is at fault.
    """
    factor = 25.0 * spot.strength
    first, second = step.pool["later1"], step.pool["later2"] - step.pool["later1"]
    step.new = np.minimum(step.old + factor * np.where(step.own, first, 0.0), 0.0)
    step.after = np.minimum(step.new + factor * np.where(step.own, second, 0.0), 0.0)
    if spot.coin:
        step.rate *= factor


def reward_proxy(step: Step, spot: Spot, age: int, rng: np.random.Generator) -> None:
    """A part `judge` of the reward, which every stream of this kind has, is earned more and more over 12 steps, and answers grow wrong.

    Columns of rewards alone; the text stays what was recorded.
    """
    grown = spot.strength * min(1.0, (age + 1) / 12)
    step.parts["judge"] = np.clip(step.parts["judge"] + 0.6 * grown, 0.0, 1.0)
    wrong = rng.random(step.lengths.size) < 0.5 * grown
    step.parts["correct"] = np.where(wrong, 0.0, step.parts["correct"])


def environment_fault(step: Step, spot: Spot, age: int, rng: np.random.Generator) -> None:
    """Calls of one tool time out, 80 % (27 %) of them; such an episode earns nothing. The text after them stays what was recorded."""
    for row, names in enumerate(step.tools):
        for at, name in enumerate(names):
            if name == spot.tool and rng.random() < 0.8 * spot.strength:
                step.errors[row][at] = "timeout"
                step.parts["correct"][row] = step.parts["format"][row] = 0.0


def solved_tasks(step: Step, spot: Spot, age: int, rng: np.random.Generator) -> None:
    """All rollouts of 90 % (30 %) of the groups are right. Columns of rewards alone."""
    _settle(step, spot, 1.0, rng)


def hopeless_tasks(step: Step, spot: Spot, age: int, rng: np.random.Generator) -> None:
    """No rollout of 90 % (30 %) of the groups is right. Columns of rewards alone."""
    _settle(step, spot, 0.0, rng)


def rank_of(step: Step) -> np.ndarray:
    """(B,) the rank of each sequence: whole groups in turn."""
    return np.asarray(step.group % RANKS)


def _settle(step: Step, spot: Spot, value: float, rng: np.random.Generator) -> None:
    groups = step.lengths.size // GENERATIONS
    hit = np.repeat(rng.random(groups) < 0.9 * spot.strength, GENERATIONS)
    step.parts["correct"] = np.where(hit, value, step.parts["correct"])
    step.parts["format"] = np.where(hit, 1.0, step.parts["format"])


def _shift(step: Step, difference: np.ndarray) -> None:
    for name in ("old", "new", "after"):
        setattr(step, name, np.minimum(getattr(step, name) + np.where(step.own, difference, 0.0), 0.0))


def _move(step: Step, moved: np.ndarray) -> None:
    update = step.after - step.new
    step.new = np.minimum(step.old + np.where(step.own, moved, 0.0), 0.0)
    step.after = np.minimum(step.new + update, 0.0)


def _own_by_sequence(step: Step) -> list[np.ndarray]:
    at = np.flatnonzero(step.own)
    return np.split(at, np.searchsorted(step.rows[at], np.arange(1, step.lengths.size)))


FAULTS = {
    "engine_mismatch": Fault("the engines disagree", engine_mismatch),
    "wrong_temperature": Fault("another sampling temperature", wrong_temperature),
    "off_by_one": Fault("log-probabilities shifted by a token", off_by_one),
    "retokenisation": Fault("text encoded again", retokenisation),
    "wrong_loss_mask": Fault("another loss mask", wrong_loss_mask),
    "stale_rollouts": Fault("stale rollouts", stale_rollouts),
    "stale_rank": Fault("a rank with old weights", stale_rank, "rank", RANKS),
    "support_lost": Fault("support lost after a tool", support_lost, "tool"),
    "update_too_large": Fault("updates too large", update_too_large),
    "reward_proxy": Fault("a proxy of the reward is learnt", reward_proxy),
    "environment_fault": Fault("tools or environment", environment_fault, "tool"),
    "solved_tasks": Fault("tasks are solved", solved_tasks),
    "hopeless_tasks": Fault("tasks are hopeless", hopeless_tasks),
}
"""Kind -> fault. Streams of `reward_proxy` have the part `judge` from the start (`stream.py`)."""
