"""The sampler of a GRPOTrainer that a curriculum fills: TRL's order of rows, with other tasks.

A block is the tasks of one generation. Blocks are numbered through all epochs and those drawn lately are
remembered, so that a resumed run skips through its epoch without drawing again, and goes on with the blocks
that the data loader had fetched ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import Dataset, Sampler

from trimtab.curriculum import Curriculum

TASK_KEY = "trimtab_task"
"""Column with the index of a row's task; taken out again before TRL reads the row."""
_REMEMBERED = 256


class TaskSampler(Sampler[int]):
    """Yields dataset rows as TRL's RepeatSampler does; an epoch has as many, but tasks may come twice or not.

    Args:
        curriculum: Draws the tasks; its ids are the rows of the dataset.
        num_tasks: Different tasks of one generation.
        num_generations: Rows of each task in a row: a group.
        repeats: Batches that one generation is handed out for.
    """

    def __init__(self, curriculum: Curriculum, *, num_tasks: int, num_generations: int, repeats: int) -> None:
        self.curriculum, self.num_tasks = curriculum, num_tasks
        self.num_generations, self.repeats = num_generations, repeats
        self.num_blocks = len(curriculum.tasks) // num_tasks  # of an epoch
        self.next_block = self.epoch_start = 0
        self._blocks: dict[int, list[int]] = {}
        self._resumed = False

    def __len__(self) -> int:
        return self.num_blocks * self.num_tasks * self.num_generations * self.repeats

    def __iter__(self) -> Iterator[int]:
        """Begin the next epoch, or after `restore` the one that was saved from its first row on."""
        self.epoch_start = self.epoch_start if self._resumed else self.next_block
        self._resumed = False
        return self._rows(self.epoch_start)

    def _rows(self, first: int) -> Iterator[int]:
        for number in range(first, first + self.num_blocks):
            tasks = self._block(number)
            for _ in range(self.repeats):
                for task in tasks:
                    for _ in range(self.num_generations):
                        yield task

    def _block(self, number: int) -> list[int]:
        """Return the tasks of a block. One that is forgotten was trained on long ago, and is only skipped."""
        if number < self.next_block:
            return self._blocks.get(number, list(range(self.num_tasks)))
        tasks = [int(task) for task in self.curriculum.draw(self.num_tasks)]
        self._blocks[number] = tasks
        self._blocks.pop(number - _REMEMBERED, None)
        self.next_block = number + 1
        return tasks

    def state(self) -> dict[str, Any]:
        """Return the state of the curriculum and the blocks of late, as what JSON keeps exactly."""
        return {
            "curriculum": self.curriculum.state_dict(),
            "epoch_start": self.epoch_start,
            "next_block": self.next_block,
            "blocks": [[number, *tasks] for number, tasks in self._blocks.items()],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken: the next epoch begins as that one did. Raises CurriculumError."""
        self.curriculum.load_state_dict(state["curriculum"])
        self.epoch_start, self.next_block = state["epoch_start"], state["next_block"]
        self._blocks = {number: tasks for number, *tasks in state["blocks"]}
        self._resumed = True


class TaskRows(Dataset[dict[str, Any]]):
    """A dataset whose rows say which task they are, in the column `TASK_KEY`."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**self.rows[index], TASK_KEY: index}

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        """Return several rows at once, as torch's data loader asks for them."""
        many = getattr(self.rows, "__getitems__", None)
        rows = [self.rows[index] for index in indices] if many is None else many(indices)
        return [{**row, TASK_KEY: index} for row, index in zip(rows, indices, strict=True)]
