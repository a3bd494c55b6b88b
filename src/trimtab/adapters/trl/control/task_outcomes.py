"""`curriculum(trainer)`: a GRPOTrainer draws its tasks by their outcomes.

Three things are wrapped: the sampler of the training data, the generation, whose rewards are the outcomes,
and the checkpoint, which takes the curriculum's state along in `trainer_state.json`.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import trl
from accelerate.utils import gather_object
from transformers import TrainerCallback

from trimtab.adapters.trl.control.task_sampler import TASK_KEY, TaskRows, TaskSampler
from trimtab.catalog import bound
from trimtab.curriculum import Curriculum, CurriculumOptions
from trimtab.errors import CurriculumError, UnsupportedError

log = logging.getLogger("trimtab")

STATE_KEY = "trimtab_curriculum"
"""Entry of `stateful_callbacks` in a checkpoint's trainer_state.json."""


def curriculum(
    trainer: Any,
    *,
    strata: Sequence[int | str] | str | None = None,
    seed: int | None = None,
    options: CurriculumOptions | None = None,
) -> Curriculum:
    """Let a GRPOTrainer draw its tasks by a curriculum. Call it before `train()`; with or without `watch`.

    The outcomes of a generation count from the next but one on: the data loader fetches one ahead.
    Checkpoints carry the state, and `train(resume_from_checkpoint=...)` goes on with the same draws.

    Args:
        trainer: A GRPOTrainer with a dataset of known length. It gets the attribute `trimtab_curriculum`.
        strata: One label a row of the dataset, or the name of a column that has them. None: all rows
            are alike.
        seed: Seed of the draws. None: the trainer's.
        options: How draws are divided and how fast outcomes fade.

    Returns:
        The curriculum; its `waste` counts the groups without gradient. Task ids are rows of the dataset.

    Raises:
        UnsupportedError: another trainer, a streamed dataset, or a second curriculum.
        CurriculumError: fewer rows than a generation has groups, or labels that do not fit.

    Example:
        >>> from trimtab.adapters.trl import curriculum  # doctest: +SKIP
        >>> tasks = curriculum(trainer, strata="level")  # doctest: +SKIP
        >>> trainer.train()  # doctest: +SKIP
        >>> tasks.waste.wasted_frac  # doctest: +SKIP
    """
    if not isinstance(trainer, trl.GRPOTrainer):
        raise UnsupportedError(f"a curriculum draws for GRPOTrainer, got {type(trainer).__name__}")
    if hasattr(trainer, "trimtab_curriculum"):
        raise UnsupportedError("this trainer has a curriculum already")
    dataset: Any = trainer.train_dataset
    if dataset is None or isinstance(dataset, torch.utils.data.IterableDataset):
        raise UnsupportedError("a curriculum needs a dataset of known length: load it without streaming")
    labels = dataset[strata] if isinstance(strata, str) else strata
    tasks = Curriculum(
        len(dataset),
        strata=None if labels is None else list(labels),
        seed=trainer.args.seed if seed is None else seed,
        options=options,
    )
    trainer.trimtab_curriculum = TaskOutcomes(trainer, tasks)
    return tasks


class TaskOutcomes(TrainerCallback):
    """Connects a curriculum with one trainer; the same on every rank, for outcomes are gathered."""

    def __init__(self, trainer: Any, tasks: Curriculum) -> None:
        args = trainer.args
        num_tasks = args.generation_batch_size // trainer.num_generations
        if num_tasks > len(tasks.tasks):
            raise CurriculumError(
                f"a generation has {num_tasks} groups, the dataset {len(tasks.tasks)} rows: lower the batch"
            )
        self.trainer, self.tasks = trainer, tasks
        self.sampler = TaskSampler(
            tasks,
            num_tasks=num_tasks,
            num_generations=trainer.num_generations,
            repeats=trainer.num_iterations * args.steps_per_generation,
        )
        self._outcome: tuple[torch.Tensor, list[str]] | None = None
        trainer._get_train_sampler = lambda *_: self.sampler
        self._inner_dataloader = trainer.get_train_dataloader
        self._inner_rewards = trainer._calculate_rewards
        self._inner_generate = trainer._generate_and_score_completions
        self._inner_save = trainer._save_checkpoint
        trainer.get_train_dataloader = self._dataloader
        trainer._calculate_rewards = self._rewards
        trainer._generate_and_score_completions = self._generate
        trainer._save_checkpoint = self._save
        trainer.add_callback(self)

    def on_train_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Take over the state of the checkpoint that training resumes from."""
        if not state.global_step:
            return
        saved = state.stateful_callbacks.get(STATE_KEY)
        if saved is None:
            log.warning(
                "trimtab: the checkpoint has no curriculum: it starts anew at step %d", state.global_step
            )
        elif self.tasks.num_draws == 0:
            self.sampler.restore(saved["attributes"])

    def _dataloader(self) -> Any:
        """Return TRL's data loader over rows that say which task they are."""
        trainer, args = self.trainer, self.trainer.args
        rows, removes = trainer.train_dataset, args.remove_unused_columns
        if hasattr(rows, "column_names"):
            rows = trainer._remove_unused_columns(rows, description="Training")
        plain, trainer.train_dataset = trainer.train_dataset, TaskRows(rows)
        args.remove_unused_columns = False  # that is done, and would remove the task
        try:
            return self._inner_dataloader()
        finally:
            trainer.train_dataset, args.remove_unused_columns = plain, removes

    def _save(self, *args: Any, **kwargs: Any) -> Any:
        """Put the state into the one that transformers writes beside the weights."""
        self.trainer.state.stateful_callbacks[STATE_KEY] = {"args": {}, "attributes": self.sampler.state()}
        return self._inner_save(*args, **kwargs)

    def _rewards(self, inputs: Any, prompts: Any, completions: Any, *args: Any, **kwargs: Any) -> Any:
        rewards = self._inner_rewards(inputs, prompts, completions, *args, **kwargs)
        if self.trainer.model.training:
            tools = [_last_tool(row, text) for row, text in zip(inputs, completions, strict=True)]
            self._outcome = rewards.detach().double().cpu(), tools
        return rewards

    def _generate(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        tasks = [row.pop(TASK_KEY, -1) for row in inputs]
        self._outcome = None
        batch = self._inner_generate(inputs, *args, **kwargs)
        if self.trainer.model.training:
            self._learn(tasks, batch)
        return batch

    def _learn(self, tasks: list[int], batch: Mapping[str, Any]) -> None:
        """Give the outcomes of all ranks to the curriculum."""
        if self._outcome is None:
            raise UnsupportedError("TRL computed no rewards for a generation: an unknown TRL version")
        scores, tools = self._outcome
        local = list(zip(tasks, tools, _tails(batch, len(tasks)), strict=True))
        rows = gather_object(local)
        weights = self.trainer.reward_weights.double().cpu()
        totals = torch.where(scores.isnan().all(dim=1), math.nan, (scores * weights).nansum(dim=1)).tolist()
        if any(row[0] < 0 for row in rows):
            raise UnsupportedError(
                "rows do not say which task they are: leave get_train_dataloader to TRL, or sample by hand"
            )
        before = (self.tasks.waste.num_groups, self.tasks.waste.num_wasted)
        self.tasks.update(
            [row[0] for row in rows],
            totals,
            tail=[row[2] for row in rows],
            tool=[row[1] for row in rows],
        )
        groups = self.tasks.waste.num_groups - before[0]
        wasted = (self.tasks.waste.num_wasted - before[1]) / groups if groups else math.nan
        metrics = self.trainer._metrics["train"]
        metrics["curriculum/wasted_groups_frac"].append(wasted)
        metrics["curriculum/throttled_tasks"].append(float(len(self.tasks.throttled())))


def task_state(trainer: Any) -> str:
    """Return the state of a trainer's curriculum as JSON; empty without one."""
    outcomes = getattr(trainer, "trimtab_curriculum", None)
    return "" if outcomes is None else json.dumps(outcomes.sampler.state())


def restore_tasks(trainer: Any, state: str, *, draws: bool) -> None:
    """Return a curriculum to a state: draws and outcomes, or after a rollback the outcomes alone."""
    outcomes = getattr(trainer, "trimtab_curriculum", None)
    if outcomes is None or not state:
        return
    if draws:
        outcomes.sampler.restore(json.loads(state))
    else:
        outcomes.tasks.rewind(json.loads(state)["curriculum"])


def _last_tool(row: Mapping[str, Any], completion: Any) -> str:
    """Return the tool that spoke last, by a rollout_func's `tool_names` or by the messages; "" for none."""
    names = row.get("tool_names")
    if names:
        return str(names[-1])
    if isinstance(completion, list):
        for message in reversed(completion):
            if isinstance(message, Mapping) and message.get("role") == "tool":
                return str(message.get("name") or "")
    return ""


def _tails(batch: Mapping[str, Any], count: int) -> list[float]:
    """Return of each row the fraction of own tokens with |log pi_old/mu| beyond the bound; nan if unknown."""
    sampler, trainer = batch.get("sampling_per_token_logps"), batch.get("old_per_token_logps")
    if sampler is None or trainer is None:
        return [math.nan] * count
    mask = batch["completion_mask"] > 0
    if batch.get("tool_mask") is not None:
        mask = mask & (batch["tool_mask"] > 0)
    far = ((trainer - sampler).abs() > bound("curriculum_tail_log")) & mask
    return [float(value) for value in (far.sum(dim=1) / mask.sum(dim=1).clamp(min=1)).tolist()]
