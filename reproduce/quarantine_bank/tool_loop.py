"""The bank's loop with levers for tools: whose episodes are trained on, and which tools are offered."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from reproduce.collapse_bank.batches import Array
from reproduce.collapse_bank.loop import GENERATIONS, MAX_TOKENS, PROMPTS, STYLE, Rows, Sampled
from reproduce.collapse_bank.regimes import Regime
from reproduce.collapse_bank.rewards import SPREAD_FLOOR, score
from reproduce.collapse_bank.sampling import FailingToolbox, play
from reproduce.collapse_bank.transformer import Weights, quantise
from reproduce.guard_bank.lever_loop import LeverLoop
from trimtab.errors import UnsupportedError
from trimtab.lab.database import TOOL_NAMES
from trimtab.lab.tasks import TaskMix, parse_task
from trimtab.tools.admission import ToolAdmission
from trimtab.tools.exclusion import excluded_advantages
from trimtab.traces.core.tool_call import ToolCall
from trimtab.types import Lever

__all__ = ["TOOLS", "PlayedStep", "ToolControls", "ToolLoop"]

TOOLS = TOOL_NAMES
REDRAWS = 64
"""Tasks drawn for a group before one is taken whose tool it is not offered."""
LEVERS: tuple[Lever, ...] = ("tool_broken_gradient", "tool_gradient", "tool_offer")


class PlayedStep(NamedTuple):
    """What a step leaves: the mean true reward, every tool call, and how many episodes were left out."""

    reward: float
    calls: list[ToolCall]
    masked: int


@dataclass(frozen=True)
class ToolUse:
    """Tools that an episode called, and those of them that a failure broke."""

    called: set[str]
    broken_by: set[str]


class ToolLoop(LeverLoop):
    """One training run. `excludes`: every episode that a failing tool broke leaves the batch, always."""

    def __init__(self, start: Weights, regime: Regime, seed: int) -> None:
        super().__init__(start, regime, seed)
        self.admission, self.excludes = ToolAdmission(), False

    def branch(self, regime: Regime) -> ToolLoop:
        """Return a copy that goes on under another regime, with every fraction as it stands."""
        twin = super().branch(regime)
        assert isinstance(twin, ToolLoop)
        twin.admission = copy.deepcopy(self.admission)
        return twin

    def play_step(self) -> PlayedStep:
        """Train one step, and return what was played."""
        number = self.steps_done + 1
        sampled = self._take()
        rows = Rows(sampled.episodes)
        rewards = score(sampled.episodes, sampled.toolbox, self.regime)
        calls, uses = calls_of(sampled, number)
        group = np.arange(rows.count) // GENERATIONS
        called, broken_by = [use.called for use in uses], [use.broken_by for use in uses]
        valid = self.admission.trained(number, group, called, broken_by)
        if self.excludes:
            valid &= np.array([not broken for broken in broken_by])
        advantage = excluded_advantages(rewards["reward"], group, valid, group_advantages)
        self._update(rows, torch.from_numpy(advantage).float(), number)
        self.steps_done = number
        return PlayedStep(float(rewards["true_reward"].mean()), calls, int((~valid).sum()))

    def _sample(self, batch: int) -> Sampled:
        """Play one batch; a group is given no task whose tool it is not offered."""
        toolbox = FailingToolbox(self._world, STYLE, self.draws, fail_fraction=self.regime.tool_failures)
        tasks = TaskMix(self._world, self.draws, self.regime.alpha)
        texts = [self._prompt(tasks, batch, group) for group in range(PROMPTS)]
        prompts = [text for text in texts for _ in range(GENERATIONS)]
        weights = quantise(self.weights, self.regime.bits)
        episodes = play(weights, prompts, toolbox, batch=batch, seed=self.draws, max_tokens=MAX_TOKENS)
        return Sampled(episodes, toolbox, self.steps_done, self._scores_at_sampling(episodes))

    def _prompt(self, tasks: TaskMix, batch: int, group: int) -> str:
        offered = set(self.admission.offered(batch, group, TOOLS))
        for draw in range(REDRAWS):
            text = tasks.prompt(batch, group + draw * PROMPTS)
            needed = {call.partition(" ")[0] for call in parse_task(text, self._world).calls}
            if needed <= offered:
                break
        return text


def calls_of(sampled: Sampled, step: int) -> tuple[list[ToolCall], list[ToolUse]]:
    """Return the calls of a batch with their blame, and what each episode used."""
    calls, uses = [], []
    for index, episode in enumerate(sampled.episodes):
        use = ToolUse(set(), set())
        for turn, text in enumerate(episode.called, start=1):
            name = text.partition(" ")[0]
            failed = sampled.toolbox.fails(episode.step, episode.row, turn)
            use.called.add(name)
            if failed:
                use.broken_by.add(name)
            blame = "infrastructure" if failed else ""
            error = "HTTP 503: unavailable" if failed else ""
            calls.append(ToolCall(name, step=step, episode_id=index, error=error, blame=blame))
        uses.append(use)
    return calls, uses


def group_advantages(reward: Array, group: Array) -> Array:
    """Return rewards less the mean of their group over its standard deviation, of groups of any size."""
    result = np.zeros(reward.size)
    for one in np.unique(group):
        rows = group == one
        result[rows] = (reward[rows] - reward[rows].mean()) / (reward[rows].std(ddof=1) + SPREAD_FLOOR)
    return result


class ToolControls:
    """A loop's fractions by tool, for a guard; the guard of this test has no other lever."""

    def __init__(self, loop: ToolLoop) -> None:
        self.loop = loop

    def levers(self) -> Mapping[Lever, tuple[str, ...]]:
        """Return the levers, each for every tool."""
        return dict.fromkeys(LEVERS, tuple(f"tool/{name}" for name in TOOLS))

    def get(self, lever: Lever, slice_name: str = "all") -> float:
        """Return the fraction in force."""
        return self.loop.admission.get(lever, slice_name)

    def set(self, lever: Lever, slice_name: str, value: float) -> None:
        """Put a fraction in force."""
        self.loop.admission.set(lever, slice_name, value)

    def save(self, folder: Path) -> None:
        """Refuse: no states are kept in this test."""
        raise UnsupportedError(f"no state is saved in {folder}")

    def restore(self, folder: Path) -> None:
        """Refuse: no states are kept in this test."""
        raise UnsupportedError(f"no state is restored from {folder}")

    def stop(self) -> None:
        """Refuse: this guard has no rule that stops."""
        raise UnsupportedError("this loop is not stopped")
