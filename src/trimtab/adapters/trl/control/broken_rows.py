"""Episodes that the infrastructure broke leave the batch of a GRPOTrainer: no reward, gradient or vote.

Three methods of the trainer are wrapped: the loop that calls tools (which rows broke), the rewards (NaN for
those rows) and the generation (advantages as if the rows had never been sampled, no gradient for them).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from accelerate.utils import gather

from trimtab.errors import UnsupportedError
from trimtab.tools.blocking import FailedCall
from trimtab.tools.exclusion import Exclusion, voting_rows
from trimtab.tools.failures import classify
from trimtab.traces.core.tool_call import ToolCall

VALID_KEY = "episode_valid"
"""What a `rollout_func` returns beside the three keys of TRL: one bool a completion, False where it broke."""
_EPS = 1e-4  # of TRL, added to a group's standard deviation


def exclude_broken(trainer: Any, exclusion: Exclusion | None = None) -> BrokenRows:
    """Keep episodes that the infrastructure broke out of rewards, baselines and gradients.

    Call it before `watch`, so that the run sees what the trainer sees. Tools may come from
    `ExecutorThread.functions` or be any others: their exceptions are classified. A `rollout_func` says it
    with `episode_valid`.

    Args:
        trainer: A GRPOTrainer, built and not yet trained.
        exclusion: Which failures break an episode; those of the infrastructure by default.

    Returns:
        Counts of what was excluded so far, as `num_rows` and `num_excluded`.

    Raises:
        UnsupportedError: A trainer without groups and rewards.

    Example:
        exclude_broken(trainer)
        watch(trainer, "runs/exp1")
    """
    missing = [
        name
        for name in ("_calculate_rewards", "_generate_and_score_completions")
        if not hasattr(trainer, name)
    ]
    if missing:
        raise UnsupportedError(
            f"exclude_broken wants a GRPOTrainer; {type(trainer).__name__} has no {missing[0]}"
        )
    return BrokenRows(trainer, exclusion or Exclusion())


class BrokenRows:
    """Wraps a trainer; `num_excluded` of the `num_rows` completions so far were left out."""

    def __init__(self, trainer: Any, exclusion: Exclusion) -> None:
        self.trainer, self.exclusion = trainer, exclusion
        self.num_rows = self.num_excluded = 0
        self._broken: set[int] = set()
        self._rewards: torch.Tensor | None = None
        self._valid: torch.Tensor | None = None
        self._inner_rewards = trainer._calculate_rewards
        self._inner_generate = trainer._generate_and_score_completions
        trainer._calculate_rewards, trainer._generate_and_score_completions = self._calculate, self._generate
        if hasattr(trainer, "_tool_call_loop"):
            self._inner_loop = trainer._tool_call_loop
            trainer._tool_call_loop = self._loop

    def _loop(self, *args: Any, **kwargs: Any) -> Any:
        trainer = self.trainer
        sync, asynchronous = trainer._sync_tool_dicts, trainer._async_tool_dicts
        trainer._sync_tool_dicts, trainer._async_tool_dicts = (
            [
                {name: self._noting(row, name, one) for name, one in tools.items()}
                for row, tools in enumerate(dicts)
            ]
            for dicts in (sync, asynchronous)
        )
        try:
            return self._inner_loop(*args, **kwargs)
        finally:
            trainer._sync_tool_dicts, trainer._async_tool_dicts = sync, asynchronous

    def _noting(self, row: int, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with a note of the row where a failure of it breaks the episode."""

        def call(*args: Any, **arguments: Any) -> Any:
            self._note_call(row, name)
            try:
                value = function(*args, **arguments)
            except Exception as error:
                self._note(row, name, error)
                raise
            return wait(value) if inspect.isawaitable(value) else value

        async def wait(value: Any) -> Any:
            try:
                return await value
            except Exception as error:
                self._note(row, name, error)
                raise

        return call

    def _note_call(self, row: int, name: str) -> None:
        """Take note that a row called a tool."""

    def _note(self, row: int, name: str, error: Exception) -> None:
        failure = classify(error)
        call = (
            error.call
            if isinstance(error, FailedCall)
            else ToolCall(name, blame=failure.blame, kind=failure.kind)
        )
        if self.exclusion.breaks(call):
            self._note_broken(row, name)

    def _note_broken(self, row: int, name: str) -> None:  # noqa: ARG002
        """Take note that a failure of a tool broke a row."""
        self._broken.add(row)

    def _is_valid(self, row: int, fields: Mapping[str, Any]) -> bool:
        """Return whether a row of this process may be trained on."""
        return bool(fields.get(VALID_KEY, True)) and row not in self._broken

    def _calculate(self, inputs: Any, prompts: Any, *args: Any, **kwargs: Any) -> Any:
        rewards = self._inner_rewards(inputs, prompts, *args, **kwargs)
        rows = [self._is_valid(row, one) for row, one in enumerate(inputs)]
        valid = gather(torch.tensor(rows, device=rewards.device))  # on every rank, whatever it saw
        self._valid, self._rewards = valid, rewards.detach()
        self.num_rows += valid.numel()
        self.num_excluded += int((~valid).sum())
        return torch.where(valid.unsqueeze(1), rewards, torch.full_like(rewards, torch.nan))

    def _generate(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        self._forget()
        output = self._inner_generate(inputs, *args, **kwargs)
        valid = self._valid
        if valid is None or self._rewards is None or not self.trainer.model.training:
            return output
        first = self.trainer.accelerator.process_index * len(output["advantages"])
        here = valid[first : first + len(output["advantages"])]
        mask = output["completion_mask"] * output.get("tool_mask", 1)
        removed = gather((mask * ~here.unsqueeze(1)).sum()).sum()
        if bool(valid.all()):
            return output
        advantages = self._advantages(self._rewards, valid)
        if advantages is not None:
            output["advantages"] = advantages[first : first + len(here)].to(output["advantages"].dtype)
        output["tool_mask"] = output.get(
            "tool_mask", torch.ones_like(output["completion_mask"])
        ) * here.unsqueeze(1)
        if "num_items_in_batch" in output:
            output["num_items_in_batch"] = output["num_items_in_batch"] - removed
        return output

    def _forget(self) -> None:
        self._broken, self._valid, self._rewards = set(), None, None

    def _advantages(self, rewards: torch.Tensor, valid: torch.Tensor) -> torch.Tensor | None:
        """TRL's advantages from the voting rows alone; None where TRL normalises each reward on its own and
        its own, which leave NaN out, stand."""
        trainer = self.trainer
        if getattr(trainer, "multi_objective_aggregation", "sum_then_normalize") != "sum_then_normalize":
            return None
        total = (rewards * trainer.reward_weights.to(rewards.device).unsqueeze(0)).nansum(dim=1)
        group = torch.arange(len(total)) // trainer.num_generations
        scored = valid & ~torch.isnan(rewards).all(dim=1)
        rows = torch.from_numpy(voting_rows(group.numpy(), scored.cpu().numpy())).to(rewards.device)
        advantages = torch.zeros_like(total)
        if rows.numel():
            advantages[rows] = group_relative(
                total[rows], group.to(rewards.device)[rows], str(trainer.scale_rewards)
            )
        return advantages


def group_relative(rewards: torch.Tensor, group: torch.Tensor, scale: str) -> torch.Tensor:
    """Return TRL's advantages of groups of any size.

    Args:
        rewards: Rewards (B,).
        group: Group of each (B,).
        scale: `scale_rewards` of GRPOConfig: "group", "batch" or "none".

    Returns:
        Reward minus its group's mean, divided by the unbiased standard deviation + 1e-4 of group or batch.
    """
    result = torch.empty_like(rewards)
    for one in torch.unique(group):
        rows = group == one
        centred = rewards[rows] - rewards[rows].mean()
        result[rows] = centred / (rewards[rows].std() + _EPS) if scale == "group" else centred
    return result / (rewards.std() + _EPS) if scale == "batch" else result
