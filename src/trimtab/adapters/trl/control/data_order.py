"""Where a trainer is in its data, and how it goes back there or on from there.

transformers draws the batches of an optimizer step with `get_batch_samples`. After a rollback the stream goes
on where it is, so that the batches that led to trouble are not drawn again; it only skips to where TRL
generates next. `go_to` returns to a saved position instead, for a resume that repeats what was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from accelerate import skip_first_batches

from trimtab.adapters.trl.control.task_sampler import TaskSampler


class DataOrder:
    """Counts the batches that are drawn; replaces the stream after `go_to`."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.epoch, self.batches = -1, 0
        self._theirs: Any = None  # the epoch iterator of transformers
        self._own: Iterator[Any] | None = None
        self._loader: Any = None
        self._skip = self._start = 0
        self._inner = trainer.get_batch_samples
        trainer.get_batch_samples = self._draw

    def begin(self) -> None:
        """Training starts, perhaps from a checkpoint of transformers."""
        state, args = self.trainer.state, self.trainer.args
        self._own = self._theirs = None
        self._skip = self._start = 0
        updates = max(1, round(state.global_step / state.epoch)) if state.epoch else 0  # an epoch
        self.epoch, self.batches = -1, 0
        if updates:  # the first iterator is that of the epoch it resumes in
            self.epoch = state.global_step // updates - 1
            self._start = (state.global_step % updates) * args.gradient_accumulation_steps

    @property
    def position(self) -> dict[str, int]:
        """Epoch, from 0, and how many of its batches were drawn."""
        return {"epoch": max(self.epoch, 0), "batches": self.batches}

    def go_on(self) -> int:
        """Skip to the next batch that TRL generates for; returns how many batches are left out."""
        every = self.trainer.args.steps_per_generation * self.trainer.num_iterations
        self._skip = -self.batches % every
        return self._skip

    def go_to(self, position: dict[str, int]) -> None:
        """Draw from a saved position on, in the same order as then."""
        self.epoch, self.batches, self._skip = position["epoch"], position["batches"], 0
        self._loader = self.trainer.get_train_dataloader()
        sampler = getattr(self._loader.batch_sampler, "batch_sampler", self._loader.batch_sampler)
        epochs = 0 if isinstance(sampler.sampler, TaskSampler) else self.epoch  # that one begins where it was
        for _ in range(epochs):
            deque(iter(sampler.sampler), maxlen=0)  # the sampler's generator moves on once an epoch
        rest = iter(skip_first_batches(self._loader, self.batches))
        # an iterator takes random numbers when it begins: the caller sets them after this
        self._own = chain(list(islice(rest, 1)), rest)

    def _draw(self, theirs: Iterator[Any], num_batches: int, device: Any) -> Any:
        if self._own is None:
            return self._draw_theirs(theirs, num_batches, device)
        samples, items = self._inner(self._own, num_batches, device)
        if not samples:
            self.epoch, self.batches = self.epoch + 1, 0
            self._own = iter(self._loader)
            samples, items = self._inner(self._own, num_batches, device)
        self.batches += len(samples)
        return samples, items

    def _draw_theirs(self, theirs: Iterator[Any], num_batches: int, device: Any) -> Any:
        if theirs is not self._theirs:
            self.batches, self._start = self._start, 0
            self.epoch, self._theirs = self.epoch + 1, theirs
        while self._skip:
            self._skip -= 1
            self.batches += next(theirs, None) is not None
        samples, items = self._inner(theirs, num_batches, device)
        self.batches += len(samples)
        return samples, items
