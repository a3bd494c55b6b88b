"""The pool of recorded batches, and streams of steps drawn from it in blocks, so that the scatter from step to step is that of a run.

B sequences, N tokens of a step, packed one sequence after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["GENERATIONS", "SOURCES", "TOOLS", "Draw", "Step", "draw", "recorded_steps"]

POOL = Path(__file__).parent / "pool.npz"
POLICIES = (300, 301)
OTHER_POLICY = 302
TOOLS = ("price", "stock", "owner")
SOURCES = ("lookup", "pair", "text")
_SOURCE_OF = np.array([0, 0, 0, 1, 2, 2, 2])  # price, stock, owner, both, copy, reverse, add
STOPS = ("eos", "length", "calls")
GENERATIONS = 8
BLOCK = 6
FIRST = 8
"""Recorded steps that are left out at the start, while the policy learns fastest."""
"""Consecutive recorded steps that a stream takes at a time."""
PER_TOKEN = (
    "own", "ids", "logprob", "entropy", "other", "sampler", "later1", "later2", "later3", "later8", "hot", "hot_entropy", "warm",
    "warm_entropy", "coarse", "fine", "first",
)  # fmt: skip
PER_SEQUENCE = ("lengths", "kind", "stop", "call_counts", "correct", "format")


@dataclass
class Step:
    """One step as a loop would hand it over; faults change it in place. `pool`: what was recorded of its tokens."""

    number: int
    pool: dict[str, np.ndarray]  # (N,) each
    lengths: np.ndarray  # (B,)
    own: np.ndarray  # (N,) tokens with gradient
    tool_tokens: np.ndarray  # (N,)
    rollout: np.ndarray
    old: np.ndarray
    new: np.ndarray
    after: np.ndarray  # after the step's update
    ref: np.ndarray
    entropy: np.ndarray
    group: np.ndarray  # (B,)
    source: np.ndarray  # (B,) index into SOURCES
    parts: dict[str, np.ndarray]  # parts of the reward (B,)
    stop: list[str]
    tools: list[list[str]]
    errors: list[list[str]]
    """Error of each call, empty where it went well."""
    age: np.ndarray  # (B,) versions between sampling and training
    weights: dict[str, float] = field(default_factory=lambda: {"correct": 0.9, "format": 0.1})
    rate: float = 2.5e-4
    rates_logged: bool = True

    @property
    def rows(self) -> np.ndarray:
        """(N,) the sequence of each token."""
        return np.repeat(np.arange(self.lengths.size), self.lengths)

    @property
    def reward(self) -> np.ndarray:
        """(B,) the reward that is trained on."""
        return np.asarray(sum(weight * self.parts[name] for name, weight in self.weights.items()))

    def after_tool(self, tool: str) -> np.ndarray:
        """(N,) tokens of the policy after a result of this tool, the last that spoke."""
        start = np.concatenate([[0], np.cumsum(self.lengths)[:-1]])
        begins = self.tool_tokens & ~np.concatenate([[False], self.tool_tokens[:-1]])
        begins[start] = self.tool_tokens[start]
        ordinal = np.cumsum(begins) - np.repeat((np.cumsum(begins) - begins)[start], self.lengths)
        names = [["", *tools, *[""] * 9] for tools in self.tools]
        return self.own & np.array(
            [names[row][int(k)] == tool for row, k in zip(self.rows, ordinal, strict=True)]
        )


@dataclass(frozen=True)
class Draw:
    """How a stream is drawn. `kinds`: step -> weights of the three sources, for streams whose mixture drifts."""

    num_steps: int
    policies: Sequence[int] = POLICIES
    groups: Mapping[int, int] | int = 4
    """Groups of a step; or step -> groups from then on."""
    period: int = 0
    """Steps after which the same batches come again; 0: never."""
    mixture: Any = None
    """Function of the share of the stream (0 to 1) to weights of `SOURCES`."""


@cache
def recorded_steps(policy: int) -> list[list[dict[str, Any]]]:
    """Groups of every recorded step of one policy: columns of tokens and sequences, and names of called tools."""
    with np.load(POOL) as source:
        arrays = {
            name.split("/", 1)[1]: source[name] for name in source.files if name.startswith(f"{policy}/")
        }
    ends = np.cumsum(arrays["lengths"].astype(np.int64))
    calls = np.split(arrays["calls"], np.cumsum(arrays["call_counts"].astype(np.int64))[:-1])
    count = arrays["lengths"].size
    groups = []
    for first in range(0, count, GENERATIONS):
        rows = slice(first, first + GENERATIONS)
        tokens = slice(int(ends[first - 1]) if first else 0, int(ends[first + GENERATIONS - 1]))
        one: dict[str, Any] = {
            name: arrays[name][tokens].astype(
                np.float64 if arrays[name].dtype == np.float16 else arrays[name].dtype
            )
            for name in PER_TOKEN
        }
        one |= {name: arrays[name][rows].astype(np.float64) for name in PER_SEQUENCE}
        one["tools"] = [
            [(*TOOLS, "other")[tool - 1] for tool in calls[row]] for row in range(first, first + GENERATIONS)
        ]
        groups.append(one)
    per_step = count // arrays["norm"].size // GENERATIONS
    return [groups[i : i + per_step] for i in range(FIRST * per_step, len(groups), per_step)]


def draw(plan: Draw, rng: np.random.Generator) -> Iterator[Step]:
    """Yield the steps of a healthy stream of one policy."""
    recorded = recorded_steps(int(rng.choice(plan.policies)))
    order: list[int] = []
    size = plan.groups if isinstance(plan.groups, int) else 4
    chosen: list[list[dict[str, Any]]] = []
    for number in range(plan.num_steps):
        if isinstance(plan.groups, Mapping):
            size = plan.groups.get(number, size)
        if len(order) <= number:
            first = int(rng.integers(len(recorded) - BLOCK + 1))
            order += range(first, first + BLOCK)
        if plan.period and number >= plan.period:
            groups = chosen[number % plan.period]
        else:
            groups = _groups(recorded, order[number], size, plan, number, rng)
            chosen.append(groups)
        yield _step(number, groups, rng)


def _groups(
    recorded: list[list[dict[str, Any]]],
    index: int,
    size: int,
    plan: Draw,
    number: int,
    rng: np.random.Generator,
) -> list[dict[str, Any]]:
    groups = recorded[index]
    if plan.mixture is None:
        return [groups[i] for i in rng.permutation(len(groups))[:size]]
    near = [g for step in recorded[max(0, index - 2) : index + 3] for g in step]
    weights = np.asarray(plan.mixture(number / plan.num_steps))
    of = np.array([_SOURCE_OF[int(g["kind"][0])] for g in near])
    chance = weights[of] / np.bincount(of, minlength=3)[of]
    return [near[i] for i in rng.choice(len(near), size, replace=False, p=chance / chance.sum())]


def _step(number: int, groups: list[dict[str, Any]], rng: np.random.Generator) -> Step:
    pool = {name: np.concatenate([g[name] for g in groups]) for name in PER_TOKEN}
    rows = {name: np.concatenate([g[name] for g in groups]) for name in PER_SEQUENCE}
    tools = [list(names) for g in groups for names in g["tools"]]
    base, own = pool["logprob"], pool["own"]
    lengths = rows["lengths"].astype(np.int64)
    columns = {
        name: np.minimum(base + difference, 0.0)
        for name, difference in (
            ("rollout", pool["sampler"]), ("old", 0.0), ("new", pool["later1"]), ("after", pool["later2"]), ("ref", pool["first"]),
        )
    }  # fmt: skip
    columns["rollout"] = np.where(own, columns["rollout"], 0.0)
    slips = [["not found" if rng.random() < 0.02 else "" for _ in names] for names in tools]
    return Step(
        number=number, pool=pool, lengths=lengths, own=own.copy(), tool_tokens=~own, **columns, entropy=pool["entropy"].copy(),
        group=np.repeat(np.arange(len(groups)), GENERATIONS), source=_SOURCE_OF[rows["kind"].astype(int)],
        parts={"correct": rows["correct"].copy(), "format": rows["format"].copy()}, stop=[STOPS[int(i)] for i in rows["stop"]],
        tools=tools, errors=slips, age=np.ones(lengths.size, np.int64),
    )  # fmt: skip
