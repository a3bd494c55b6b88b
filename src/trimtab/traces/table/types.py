"""What the checks read: one row an episode, one a tool, and a few examples of each thing seen.

Shape letters: E episodes, T tools.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.errors import TraceError
from trimtab.stats import FrequentItems

COUNTS = (
    "turns", "calls", "failed", "tool_faults", "bad_arguments", "unknown_tools", "schema_errors", "repeats",
    "loop_calls",
    "void_turns", "unanswered", "empty_answers",
)  # fmt: skip
"""Integer columns: how many of each the episode has. `loop_calls`: calls of its longest loop.
`empty_answers`: 1 when the last assistant turn holds neither text nor call."""

MAX_TOOLS = 64
"""Tools with a row of their own; a model makes names up, and what comes later is gathered under `other`."""

MAX_KINDS = 16
"""Kinds of errors of a tool that are shown, the most frequent."""

OTHER = "(other)"
NO_NAME = "(no name)"
MAX_EVIDENCE = 5


def solved_by(
    reward: npt.NDArray[np.float64], success: npt.NDArray[np.int8], solved_at: float | None = None
) -> tuple[npt.NDArray[np.int8], str]:
    """Return (E,) 1 solved, 0 failed, -1 unknown, and what says so; "" where nothing does.

    `reward` is not finite and `success` is -1 where the log has none. TraceError for a threshold of NaN or
    infinity, which nothing reaches.
    """
    finite = np.isfinite(reward)
    if solved_at is not None:
        if not math.isfinite(solved_at):
            raise TraceError(f"--solved-at {solved_at:g}: nothing can be said to reach that; give a number")
        by_threshold = np.where(finite, reward >= solved_at, -1)
        return by_threshold.astype(np.int8), f"reward of at least {solved_at:g}"
    labelled = success >= 0
    binary = finite.any() and np.isin(reward[finite], (0.0, 1.0)).all()
    by_reward = np.where(finite, reward == 1.0, -1).astype(np.int8)
    if labelled.any() and binary and (finite & ~labelled).any():
        both = np.where(labelled, success, by_reward)
        return both, "the log's success, or where it says none a reward of 1, as every reward is 0 or 1"
    if labelled.any():
        return success, "the log's success"
    if binary:
        return by_reward, "reward of 1, as every reward is 0 or 1"
    return np.full_like(success, -1), ""


def group_of(group: str | None, task: str | None, step: int | None = None) -> str | None:
    """The group whose rewards were compared: the log's, else the attempts at a task; in one training step,
    where it is known, for steps may number their groups anew.

    >>> group_of("g", "t", 3), group_of(None, "t", 3), group_of(None, "t"), group_of(None, None, 3)
    ('g in step 3', 't in step 3', 't', None)
    """
    name = task if group is None else group
    return name if name is None or step is None else f"{name} in step {step}"


@dataclass(frozen=True)
class Evidence:
    """One example. `step` is the log's number, or the index in the episode; -1: the whole episode."""

    episode: str
    step: int
    text: str
    source: str = ""


@dataclass
class ToolRow:
    """Calls of one tool; `unknown`: those for which it does not exist; `kinds`: of errors.
    Latencies in seconds, of the `timed` calls that have one; nan without any. `p95_low`, `p95_high`: between
    which of them the 95th percentile lies (`stats.quantile_ends`). `slowest`: the five slowest calls, the
    slowest first, where the engine keeps them.

    `first`, `last`: number of the first and the last episode that called it. `sum_ff`, `sum_fc`, `sum_cc`:
    over episodes, failed squared, failed by calls and calls squared: calls of one episode are not
    independent.
    """

    calls: int = 0
    failed: int = 0
    unknown: int = 0
    faults: Counter[str] = field(default_factory=Counter)  # tool, policy, unknown
    kinds: FrequentItems = field(default_factory=FrequentItems)
    episodes: int = 0
    timed: int = 0
    p50: float = float("nan")
    p95: float = float("nan")
    p99: float = float("nan")
    p95_low: float = float("nan")
    p95_high: float = float("nan")
    slowest: list[Evidence] = field(default_factory=list)
    first: int = -1
    last: int = -1
    sum_ff: int = 0
    sum_fc: int = 0
    sum_cc: int = 0


@dataclass
class TraceTable:
    """`reward` (E,) nan where there is none, and `nan_rewards` where the log said NaN or infinity. `success`,
    `truncated` (E,): 1, 0, or -1 unknown. `ratio` (E,): the largest |log-ratio| of its tokens, nats; nan
    where the log has none. `task`, `group`, `stop`, `first_error` (E,): indices in `tasks`, `groups`
    (`group_of`), `stops`, `first_errors`; -1: none. `used`, `erred` (E, T) of bool: did the episode call the
    tool of `tool_names`, did a call of it fail? `time` (E,): when the episode began, seconds since 1970, nan
    unknown. `symptom`, `symptom_turn`, `symptom_step` (E,): see `first_symptom`. `error_flags_in_log`: False
    where no field of the log says whether a call failed: errors were inferred from result text. `version`
    (E,): index in `versions`, policy versions as text in the order of their coming, or `step 3` where
    training steps alone are known. `policy` (E,): index in `policies`, model and version as far as the log
    names them. `marks`: `text_marks.MARKS` -> (E,). `files`: a required file -> the calls
    that named it, `file_used` (E, F): which episodes did. `by_prompt`: episodes whose group is their prompt's
    (`prompt_groups`).
    """

    ids: Sequence[str]
    counts: Mapping[str, npt.NDArray[np.int64]]
    reward: npt.NDArray[np.float64]
    success: npt.NDArray[np.int8]
    truncated: npt.NDArray[np.int8]
    tokens: npt.NDArray[np.float64]
    duration_s: npt.NDArray[np.float64]
    cost: npt.NDArray[np.float64]
    ratio: npt.NDArray[np.float64]
    task: npt.NDArray[np.int64]
    group: npt.NDArray[np.int64]
    stop: npt.NDArray[np.int64]
    first_error: npt.NDArray[np.int64]
    tasks: list[str]
    groups: list[str]
    stops: list[str]
    first_errors: list[str]
    tools: dict[str, ToolRow]
    tool_names: list[str]
    used: npt.NDArray[np.bool_]
    erred: npt.NDArray[np.bool_]
    time: npt.NDArray[np.float64]
    symptom: npt.NDArray[np.int64]
    symptom_turn: npt.NDArray[np.int64]
    symptom_step: npt.NDArray[np.int64]
    version: npt.NDArray[np.int64]
    policy: npt.NDArray[np.int64]
    versions: list[str] = field(default_factory=list)
    policies: list[str] = field(default_factory=list)
    marks: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    files: dict[str, ToolRow] = field(default_factory=dict)
    file_used: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros((0, 0), bool))
    declared_tools: frozenset[str] = frozenset()
    nan_rewards: int = 0
    num_checked_schemas: int = 0
    sources: Sequence[str] = ()
    evidence: dict[str, list[Evidence]] = field(default_factory=dict)
    error_flags_in_log: bool = False
    by_prompt: int = 0

    @property
    def num_episodes(self) -> int:
        """E."""
        return len(self.ids)

    def total(self, name: str) -> int:
        """Sum of an integer column."""
        return int(self.counts[name].sum())

    def solved(self, solved_at: float | None = None) -> tuple[npt.NDArray[Any], str]:
        """(E,) 1 solved, 0 failed, -1 unknown, and where that comes from: the log's success, a threshold of
        the reward, or a reward that is 0 or 1 throughout, also of episodes of which the log's success does
        not speak."""
        return solved_by(self.reward, self.success, solved_at)
