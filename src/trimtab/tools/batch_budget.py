"""A batch of episodes with budgets: how often the infrastructure and the data may fail, and a floor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from trimtab.errors import ToolError
from trimtab.tools.extras import library
from trimtab.tools.failures import classify
from trimtab.tools.limits import Limiter

Task = TypeVar("Task")
Episode = TypeVar("Episode")


class DataFailure(Exception):
    """A task that cannot be played, as one whose files are missing: raise it from an episode."""


@dataclass(frozen=True)
class BudgetOptions:
    """How often an episode is tried again, and what becomes of one that is given up.

    The defaults are those of NeMo RL: five attempts for the infrastructure, two for the data, nine tenths.
    """

    infrastructure_attempts: int = 5
    data_attempts: int = 2
    min_fraction: float = 0.9  # of the episodes asked for; below it the batch fails
    on_dropped: Literal["shrink", "replace"] = "replace"  # "replace" draws spare tasks
    concurrency: int = 256  # episodes at a time

    def __post_init__(self) -> None:
        if min(self.infrastructure_attempts, self.data_attempts, self.concurrency) < 1:
            raise ToolError("attempts and concurrency of a batch must be at least 1")
        if not 0 <= self.min_fraction <= 1:
            raise ToolError(f"min_fraction {self.min_fraction} is not between 0 and 1")


@dataclass
class Batch(Generic[Task, Episode]):
    """Episodes in the order of their tasks, and what it took. `dropped`: tasks given up, with the reason."""

    rows: list[tuple[Task, Episode]] = field(default_factory=list)
    dropped: list[tuple[Task, str]] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)  # "infrastructure" and "data" attempts lost


async def collect_batch(
    play: Callable[[Task], Awaitable[Episode]],
    tasks: Iterable[Task],
    options: BudgetOptions | None = None,
    *,
    spare: Iterable[Task] = (),
    broken: Callable[[Episode], bool] = lambda _: False,
) -> Batch[Task, Episode]:
    """Play every task, again where the infrastructure or the data failed, within budgets of their own.

    Args:
        play: One episode of a task. `DataFailure` is charged to the data; what is classified as
            infrastructure (`failures.classify`) to that; any other exception is raised.
        tasks: The tasks of the batch.
        options: Budgets, floor, and what becomes of tasks that are given up.
        spare: Tasks that stand in for dropped ones under "replace".
        broken: Did the infrastructure break an episode that came to an end?

    Returns:
        The batch.

    Raises:
        ToolError: Fewer episodes than the floor.

    Example:
        >>> import anyio
        >>> async def play(task): return task * 2
        >>> anyio.run(collect_batch, play, [1, 2]).rows
        [(1, 2), (2, 4)]
    """
    options = options or BudgetOptions()
    wanted, batch = list(tasks), Batch[Task, Episode]()
    spares, slots = iter(spare), Limiter(options.concurrency)
    rows: dict[int, tuple[Task, Episode]] = {}

    async def fill(number: int, task: Task) -> None:
        candidates: Iterator[Task] = iter((task,))
        while True:
            one = next(candidates, None)
            if one is None:
                one = next(spares, None) if options.on_dropped == "replace" else None
            if one is None:
                return
            await slots.acquire()
            try:
                episode, reason = await _tries(play, one, options, batch, broken)
            finally:
                slots.release()
            if not reason:
                rows[number] = (one, episode)
                return
            batch.dropped.append((one, reason))

    async with library("anyio").create_task_group() as group:
        for number, task in enumerate(wanted):
            group.start_soon(fill, number, task)
    batch.rows = [rows[number] for number in sorted(rows)]
    if len(batch.rows) < options.min_fraction * len(wanted):
        reasons = Counter(reason for _, reason in batch.dropped).most_common(3)
        raise ToolError(
            f"batch below its floor: {len(batch.rows)} of {len(wanted)} episodes, "
            f"{options.min_fraction:g} wanted ({'; '.join(f'{reason}: {n}' for reason, n in reasons)})"
        )
    return batch


async def _tries(
    play: Callable[[Task], Awaitable[Episode]],
    task: Task,
    options: BudgetOptions,
    batch: Batch[Task, Episode],
    broken: Callable[[Episode], bool],
) -> tuple[Any, str]:
    """The episode and "", or None and why the task was given up."""
    left = {"infrastructure": options.infrastructure_attempts, "data": options.data_attempts}
    while True:
        try:
            episode = await play(task)
            if not broken(episode):
                return episode, ""
            charge, text = "infrastructure", "infrastructure: a tool call broke the episode"
        except DataFailure as error:
            charge, text = "data", f"data: {error}"
        except Exception as error:
            failure = classify(error)
            if failure.blame != "infrastructure":
                raise
            charge, text = "infrastructure", f"infrastructure: {failure.kind}"
        batch.failures[charge] += 1
        left[charge] -= 1
        if not left[charge]:
            return None, text
