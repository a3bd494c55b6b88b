"""The steps before the fault, trained once a seed and shared by all arms; every fifth state is kept, so that an arm can begin at any step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from reproduce.collapse_bank.batches import StepBatch
from reproduce.guard_bank.lever_loop import LeverLoop

__all__ = ["KEEP_EVERY", "Trail"]

KEEP_EVERY = 5


@dataclass
class Trail:
    """A run as far as it was trained: its rewards, and copies of the loop to begin from."""

    rewards: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    batches: list[StepBatch] = field(default_factory=list)
    """Whole batches, of a watched trail."""
    copies: dict[int, LeverLoop] = field(default_factory=dict)
    """Steps done -> the loop then."""

    def loop_at(self, step: int) -> LeverLoop:
        """Return a loop that has done `step` steps of this trail: the nearest copy, trained on."""
        loop = self.copies[max(done for done in self.copies if done <= step)]
        loop = loop.branch(loop.regime)
        while loop.steps_done < step:
            loop.train()
        return loop

    def go_on(
        self, loop: LeverLoop, last: int, finished: Callable[[list[float]], bool] = lambda rewards: False
    ) -> None:
        """Train `loop` up to step `last` and note what it does; `finished` takes the rewards and ends it earlier."""
        self.copies.setdefault(loop.steps_done, loop.branch(loop.regime))
        while loop.steps_done < last and not finished(self.rewards):
            if loop.watched:
                batch = loop.step()
                self.batches.append(batch)
                numbers = (batch.reward, batch.numbers["loss"], batch.numbers["grad_norm"])
            else:
                done = loop.train()
                numbers = (done.reward, done.loss, done.grad_norm)
            for values, value in zip((self.rewards, self.losses, self.norms), numbers, strict=True):
                values.append(value)
            if loop.steps_done % KEEP_EVERY == 0 or loop.steps_done == last:
                self.copies[loop.steps_done] = loop.branch(loop.regime)
