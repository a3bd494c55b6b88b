"""`watch(trainer, folder)`: the one line that attaches trimtab to a SkyRL trainer.

SkyRL's callbacks are not used: its fully asynchronous trainer fires none, and at `on_step_end` the batch has
lost its rewards and its advantages are scaled by the loss reduction. So four methods are wrapped:
`convert_to_training_input` (rewards, prompts), `train_critic_and_policy` (the batch before the update), the
tracker's `log` (the end of a step), and of the asynchronous trainer the method that knows the age of a group.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trimtab.adapters.scored_batch import scored_parts
from trimtab.adapters.skyrl.training_input import ABSENT, Rollouts, batch_columns, rollouts_of
from trimtab.errors import UnsupportedError
from trimtab.monitor import Run, open_run

_WRAPPED = ("convert_to_training_input", "train_critic_and_policy")
_AGES = "convert_generation_group_mini_batch_to_training_input"
ToolNames = Callable[[Mapping[str, Any]], Sequence[Sequence[str]]]


def watch(
    trainer: Any,
    folder: str | os.PathLike[str],
    *,
    tools: ToolNames | None = None,
    **open_with: Any,
) -> Run:
    """Watch a SkyRL trainer (RayPPOTrainer or FullyAsyncRayPPOTrainer) and write the run to `folder`.

    Call it in the driver, after the trainer is built and before `train()`. Close the run afterwards, or use
    it as a context manager.

    Args:
        trainer: SkyRL trainer. It gets the attribute `trimtab_run`.
        folder: Run folder; created if it is missing.
        tools: Function from a GeneratorOutput to the tool names of each row, in the order of their results.
            SkyRL does not record them. None: tokens after a tool share one slice.
        **open_with: Arguments of `trimtab.open_run`, such as `rules` or `sinks`.

    Returns:
        The open run.

    Raises:
        UnsupportedError: `trainer` has not the methods of a SkyRL trainer, or is watched already.
        RunError: `folder` cannot be used.

    Example:
        with watch(trainer, "runs/exp1"):
            asyncio.run(trainer.train())

    Reference:
        SkyRL 0.3.0, skyrl/train/trainer.py and fully_async_trainer.py.
    """
    missing = [name for name in (*_WRAPPED, "tracker") if getattr(trainer, name, None) is None]
    if missing:
        raise UnsupportedError(
            f"watch needs a SkyRL trainer; {type(trainer).__name__} has no {', '.join(missing)}"
        )
    if getattr(trainer, "trimtab_run", None) is not None:
        raise UnsupportedError(f"this trainer is already watched, in {trainer.trimtab_run.writer.folder}")
    run = open_run(folder, config={"trainer": f"skyrl {type(trainer).__name__}"}, **open_with)
    _Hooks(trainer, run, tools)
    trainer.trimtab_run = run
    return run


class _Hooks:
    """Wrappers around a trainer's methods. They change nothing of what those take or return."""

    def __init__(self, trainer: Any, run: Run, tools: ToolNames | None) -> None:
        self.trainer, self.run, self.tools = trainer, run, tools
        self.rollouts: Rollouts | None = None
        self.versions: list[int] | None = None
        self.metrics: dict[str, Any] = {}
        self.num_trajectories = 0
        self.open = False  # a batch was trained on, and its step is not flushed yet
        self._wrap(trainer, "convert_to_training_input", self._convert)
        self._wrap(trainer, "train_critic_and_policy", self._train)
        self._wrap(trainer.tracker, "log", self._log)
        if getattr(trainer, _AGES, None) is not None:
            self._wrap(trainer, _AGES, self._ages)

    def _wrap(self, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
        inner = getattr(owner, name)
        setattr(owner, name, lambda *args, **kwargs: wrapper(inner, *args, **kwargs))

    def _convert(self, inner: Any, generator_output: Any, uids: Any, *args: Any, **kwargs: Any) -> Any:
        with self.run.isolated("read SkyRL rollouts"):
            rollouts = rollouts_of(generator_output, uids, self.num_trajectories)
            self.num_trajectories = int(rollouts.episode.max(initial=-1)) + 1
            if self.tools is not None:
                rollouts = replace(rollouts, tools=self.tools(generator_output))
            self.rollouts = rollouts
        return inner(generator_output, uids, *args, **kwargs)

    def _ages(self, inner: Any, groups: Any, *args: Any, **kwargs: Any) -> Any:
        with self.run.isolated("read ages of SkyRL rollouts"):
            self.versions = [
                int(group.global_step_when_scheduled)
                for group in groups
                for _ in group.generator_output["response_ids"]
            ]
        return inner(groups, *args, **kwargs)

    def _train(self, inner: Any, data: Any, *args: Any, **kwargs: Any) -> Any:
        with self.run.isolated("read SkyRL batch"):
            self.open = True
            columns = batch_columns(data)
            rows = {} if self.rollouts is None else self.rollouts.arguments()
            if self.versions is not None:
                rows |= {"policy_version": self.versions, "current_version": int(self.trainer.global_step)}
            known = {*columns, *rows} | ({"old_logprobs"} if "logprobs" in columns else set())
            rows["absent"] = {name: why for name, why in ABSENT.items() if name not in known}
            for part in scored_parts(columns, rows):
                self.run.observe(**part)
        self.rollouts, self.versions = None, None
        return inner(data, *args, **kwargs)

    def _log(self, inner: Any, data: Any, step: int, commit: bool = False, **kwargs: Any) -> Any:
        with self.run.isolated("close SkyRL step"):
            self.metrics |= data
            if commit and self.open:
                updates = self._updates()
                why = f"{updates} optimizer steps a batch, and the workers keep what they score between them"
                absent = {"staleness": why} if updates > 1 else {}
                seconds = self.metrics.get("timing/step")
                self.run.flush(int(step), self.metrics, absent, seconds)
            if commit:
                self.metrics, self.open = {}, False
        return inner(data, step, commit=commit, **kwargs)

    def _updates(self) -> int:
        """Return the optimizer steps that one batch is trained for."""
        settings = self.trainer.cfg.trainer
        batches = settings.train_batch_size // max(settings.policy_mini_batch_size, 1)
        return int(max(batches, 1) * settings.update_epochs_per_batch)
