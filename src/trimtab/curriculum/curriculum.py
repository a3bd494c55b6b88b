"""Curriculum: which tasks are drawn next, from the outcomes of those drawn before. M tasks, B rollouts."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.curriculum.curriculum_options import (
    CurriculumOptions,
    stratum_numbers,
    task_ids_of,
    whole_number,
)
from trimtab.curriculum.group_waste import WasteCounts
from trimtab.curriculum.revisits import Revisits
from trimtab.curriculum.state_file import read_state, write_state
from trimtab.curriculum.success_estimates import SuccessEstimates
from trimtab.curriculum.tail_throttle import TailThrottle
from trimtab.errors import CurriculumError

VERSION = 1


class Curriculum:
    """Draws tasks by the outcomes of those drawn before: intermediate success first, and nothing starved.

    A task's weight is its expected p (1 - p) under a discounted Beta posterior of its success rate p, times a
    throttle for heavy tails. Draws depend on seed, outcomes and the number of draws alone.

    Args:
        tasks: Ids of the M tasks, or M itself for 0 to M - 1. Ids are whole numbers or texts, each once.
        strata: One label a task, such as its data source or level; tasks of a label share a
            prior. None: all do.
        seed: Whole number of at least 0.
        options: How draws are divided and how fast outcomes fade.

    Raises:
        CurriculumError: no tasks, an id twice or of another type, or another number of labels.

    Example:
        >>> curriculum = Curriculum(["add", "sort", "prove"], seed=1)
        >>> batch = curriculum.draw(2)
        >>> curriculum.update([batch[0]] * 4 + [batch[1]] * 4, [1, 0, 1, 0, 0, 0, 0, 0])
        >>> curriculum.waste.num_wasted, curriculum.waste.num_groups
        (1, 2)

    Reference:
        Learnability p (1 - p): Rutherford et al. 2024, arXiv 2408.15099. Replay of levels by score, with
        staleness: Jiang et al. 2021, arXiv 2010.03934. Growing intervals: Leitner 1972.
    """

    def __init__(
        self,
        tasks: int | Sequence[int | str],
        *,
        strata: Sequence[int | str] | None = None,
        seed: int = 0,
        options: CurriculumOptions | None = None,
    ) -> None:
        self.tasks, self.seed = task_ids_of(tasks), whole_number(seed, "seed")
        self.options = options or CurriculumOptions()
        self._index = {task: index for index, task in enumerate(self.tasks)}
        if not self.tasks or len(self._index) != len(self.tasks):
            raise CurriculumError("a curriculum needs at least one task, and every id once")
        labels = stratum_numbers(strata, len(self.tasks))
        self.waste = WasteCounts()
        """Groups so far, and those without gradient."""
        self.num_draws = self.num_batches = 0
        self._estimates = SuccessEstimates(labels, self.options.half_life)
        self._revisits = Revisits(len(self.tasks), self.options.revisit_after, seed)
        self._throttle = TailThrottle(len(self.tasks))

    @property
    def max_gap(self) -> int:
        """Draws within which every task is drawn at least once: `floor_every` * M.

        Of so many draws in a row M go to the task drawn longest ago. Suppose they leave a task out. Then each
        of them went to another task with an older last draw, and none to the same one twice: M different
        tasks among M - 1.
        """
        return self.options.floor_every * len(self.tasks)

    def draw(self, num_tasks: int) -> list[int | str]:
        """Return the tasks of the next batch, all different.

        Args:
            num_tasks: Groups of the batch, 1 to M.

        Returns:
            `num_tasks` ids.

        Raises:
            CurriculumError: `num_tasks` is out of range.

        Example:
            >>> sorted(Curriculum(3).draw(3))
            [0, 1, 2]
        """
        if not 1 <= num_tasks <= len(self.tasks):
            raise CurriculumError(f"a batch has 1 to {len(self.tasks)} different tasks, not {num_tasks}")
        batch, every = self.num_batches, self.options.floor_every
        free = np.ones(len(self.tasks), bool)
        wanted = iter(self._by_weight(num_tasks))
        chosen: list[int] = []
        for number in range(self.num_draws, self.num_draws + num_tasks):
            task = None
            if number % every == 0:
                task = self._revisits.oldest(free)
            elif number % every == 1:
                task = self._revisits.overdue(free, batch)
            if task is None:
                task = next(index for index in wanted if free[index])
            free[task] = False
            self._revisits.drawn(task, number)
            chosen.append(task)
        self.num_draws += num_tasks
        self.num_batches += 1
        return [self.tasks[index] for index in chosen]

    def batches(self, num_tasks: int) -> Iterator[list[int | str]]:
        """Yield batches without end; `update` may be called between them."""
        while True:
            yield self.draw(num_tasks)

    def __iter__(self) -> Iterator[int | str]:
        """Yield one task after the other without end."""
        while True:
            yield from self.draw(1)

    def update(
        self,
        task_ids: Sequence[int | str],
        rewards: Sequence[float] | NDArray[np.float64],
        *,
        tail: Sequence[float] | NDArray[np.float64] | None = None,
        tool: Sequence[str] | None = None,
    ) -> None:
        """Learn from the outcomes of some groups. Rollouts of one task in one call are one group.

        Args:
            task_ids: Task of each rollout, (B,).
            rewards: Reward of each rollout, (B,). One that is not finite is counted and left out.
            tail: How heavy the tail of each rollout is, (B,), at least 0; nan where unknown. None: not
                observed.
            tool: Name of the tool each rollout used last, (B,), "" for none.

        Raises:
            CurriculumError: an unknown task, unequal lengths, or a tail that is below 0 or infinite.

        Example:
            >>> curriculum = Curriculum(2)
            >>> curriculum.update([0, 0, 1, 1], [1.0, 0.0, 0.0, 0.0], tail=[0.1, 0.1, 0.4, 0.2])
            >>> [round(rate, 2) for rate in curriculum.success_rates()]
            [0.42, 0.09]
        """
        values = np.asarray(rewards, float)
        tails = np.full(values.size, math.nan) if tail is None else np.asarray(tail, float)
        tools = [""] * values.size if tool is None else list(tool)
        if not len(task_ids) == values.size == tails.size == len(tools):
            raise CurriculumError(
                f"task_ids, rewards, tail and tool have one entry a rollout; got {len(task_ids)}, "
                f"{values.size}, {tails.size} and {len(tools)}"
            )
        if values.ndim != 1 or bool((tails < 0).any() or np.isinf(tails).any()):
            raise CurriculumError(
                "rewards are one row, and a tail is at least 0 and finite; nan where it is not known"
            )
        groups: dict[int, list[int]] = {}
        for row, task in enumerate(task_ids):
            groups.setdefault(self._row_of(task), []).append(row)
        for index, rows in groups.items():
            self._add_group(index, values[rows], tails[rows], [tools[row] for row in rows])

    def success_rates(self) -> list[float]:
        """Return the posterior mean success rate of every task, in [0, 1], in the order of `tasks`."""
        return [float(rate) for rate in self._estimates.rates(self.num_batches)]

    def weights(self) -> NDArray[np.float64]:
        """Return the weight of every task in the draws by weight, (M,), at least 0."""
        learnability = self._estimates.learnability(self.num_batches) ** self.options.sharpness
        return np.asarray(learnability * self._throttle.factors())

    def throttled(self) -> dict[int | str, float]:
        """Return the tasks whose weight a heavy tail lowers, each with its factor below 1."""
        factors = self._throttle.factors()
        return {self.tasks[index]: float(factors[index]) for index in np.flatnonzero(factors < 1.0)}

    def state_dict(self) -> dict[str, Any]:
        """Return all that the next draws depend on, as values that JSON keeps exactly."""
        rows = np.flatnonzero((self._revisits.last_draw >= 0) | (self._estimates.rollouts > 0))
        return {
            "version": VERSION,
            "tasks": self._digest(),
            "seed": self.seed,
            "options": asdict(self.options),
            "num_draws": self.num_draws,
            "num_batches": self.num_batches,
            "waste": self.waste.state(),
            "rows": rows.tolist(),
            "estimates": self._estimates.state(rows),
            "revisits": self._revisits.state(rows),
            "throttle": self._throttle.state(rows),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a curriculum over the same tasks was: the next draws are the same, bit for bit.

        Raises:
            CurriculumError: the state is of other tasks, seed, options or version, or it is not whole.
        """
        expected = self.state_dict()
        for name in ("version", "tasks", "seed", "options"):
            if state.get(name) != expected[name]:
                raise CurriculumError(
                    f"the curriculum's state has {name} {state.get(name)!r}, this one {expected[name]!r}; "
                    "build it with the same tasks, strata, seed and options"
                )
        try:
            self._restore(state)
        except (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            self._restore(expected)
            raise CurriculumError(f"the curriculum's state is not whole: {error!r}") from error

    def _restore(self, state: Mapping[str, Any]) -> None:
        rows = np.array(state["rows"], np.int64)
        self.waste = WasteCounts(**state["waste"])
        self.num_draws, self.num_batches = int(state["num_draws"]), int(state["num_batches"])
        self._estimates.restore(rows, state["estimates"])
        self._revisits.restore(rows, state["revisits"])
        self._throttle.restore(rows, state["throttle"])

    def rewind(self, state: Mapping[str, Any]) -> None:
        """Return to the outcomes of an earlier state, as its weights are back; draws and waste go on.

        Raises:
            CurriculumError: as `load_state_dict`.
        """
        now = self.state_dict()
        last_draw = self._revisits.last_draw.copy()
        self.load_state_dict(state)
        self.waste = WasteCounts(**now["waste"])
        self.num_draws, self.num_batches = now["num_draws"], now["num_batches"]
        self._revisits.last_draw = last_draw

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a JSON file; a process killed meanwhile leaves the file before."""
        write_state(path, self.state_dict())

    def load(self, path: str | os.PathLike[str]) -> None:
        """Go on from a file that `save` wrote. Raises CurriculumError as `load_state_dict` does."""
        self.load_state_dict(read_state(path))

    def _row_of(self, task: int | str) -> int:
        try:
            return self._index[task]
        except (KeyError, TypeError):
            raise CurriculumError(f"{task!r} is not a task of this curriculum of {len(self.tasks)}") from None

    def _by_weight(self, num_tasks: int) -> NDArray[np.int64]:
        """Return enough tasks for a batch, by weight without replacement: largest log w + Gumbel noise."""
        noise = np.random.default_rng([self.seed, 811, self.num_batches]).gumbel(size=len(self.tasks))
        keys = np.log(self.weights() + 1e-300) + noise
        return np.argsort(-keys, kind="stable")[: 2 * num_tasks]

    def _add_group(
        self, task: int, rewards: NDArray[np.float64], tails: NDArray[np.float64], tools: list[str]
    ) -> None:
        finite = rewards[np.isfinite(rewards)]
        self.waste.num_excluded_rollouts += rewards.size - finite.size
        known = tails[~np.isnan(tails)]
        tool, _ = Counter(tools).most_common(1)[0]
        self._throttle.add(task, float(known.mean()) if known.size else math.nan, tool)
        if not finite.size:
            self.waste.num_empty_groups += 1
            return
        successes = int((finite >= self.options.success).sum())
        self._estimates.add(task, self.num_batches, successes, finite.size)
        self._revisits.outcome(task, self.num_batches, failed=successes == 0)
        self.waste.add(finite, self.options.success)

    def _digest(self) -> str:
        """Return a digest of the ids and the strata, in order."""
        text = json.dumps([self.tasks, self._estimates.strata.tolist()])
        return hashlib.sha256(text.encode()).hexdigest()[:16]
