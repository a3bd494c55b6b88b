"""A TrainerCallback that takes snapshots: before the first step, at a cadence, and after the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from trimtab.adapters.snapshots.fixed_transcripts import (
    FixedSet,
    SnapshotOptions,
    answered,
    fixed_set,
    stored_set,
)
from trimtab.adapters.snapshots.model_snapshots import model_answers, score_transcripts, undisturbed
from trimtab.monitor import Run
from trimtab.snapshots import Answer, TranscriptScores, read_snapshots


class SnapshotCallback(TrainerCallback):
    """Takes the snapshots of one trainer and writes them to its run; rank 0 alone does.

    It holds the trainer itself: transformers hands callbacks the model, and not the trainer. A failure is
    recorded in the run and training goes on.

    Args:
        trainer: A transformers or TRL trainer whose ranks hold all of the weights.
        run: The open run.
        options: What to ask, and how often.

    Raises:
        UnsupportedError: There are no prompts.

    Example:
        >>> trainer.add_callback(SnapshotCallback(trainer, run, SnapshotOptions(every=50)))  # doctest: +SKIP
    """

    def __init__(self, trainer: Any, run: Run, options: SnapshotOptions) -> None:
        self.trainer, self.run, self.options = trainer, run, options
        self.folder = Path(run.writer.folder)
        wanted = fixed_set(trainer, options)
        self.fixed: FixedSet = stored_set(self.folder, wanted.key) or wanted
        self._last = -1
        """Step of the last snapshot."""

    def on_train_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Take one of the start; after a resume only where its step has none."""
        self._last = -1
        with self.run.isolated("read the snapshots", cost="snapshots"):
            if state.global_step and any(
                one.step == state.global_step for one in read_snapshots(self.folder).snapshots
            ):
                self._last = int(state.global_step)
        self._take(int(state.global_step))

    def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Take one where it is due: at the cadence, and at the last step."""
        step = int(state.global_step)
        if step % self.options.every == 0 or step >= state.max_steps:
            self._take(step)

    def _take(self, step: int) -> None:
        if step == self._last or self.trainer.accelerator.process_index:
            return
        self._last = step
        with self.run.isolated("take a snapshot", cost="snapshots"):
            model = self.trainer.accelerator.unwrap_model(self.trainer.model)
            with undisturbed(model):
                self.run.snapshot(
                    step,
                    self.fixed.prompts,
                    lambda texts: self._answers(model, texts),
                    lambda: self._scores(model),
                )

    def _answers(self, model: Any, texts: Sequence[str]) -> list[Answer]:
        processor = self.trainer.processing_class
        tokenizer = getattr(processor, "tokenizer", processor)
        answers, written = model_answers(
            model, tokenizer, self.fixed.prompt_ids, max_new_tokens=self.options.max_new_tokens
        )
        if not self.fixed.transcripts:
            self.fixed = answered(self.fixed, written)
            self.fixed.store(self.folder)
        if self.options.reward is None:
            return answers
        rewards = self.options.reward(list(texts), [answer.text for answer in answers])
        return [
            replace(answer, reward=float(reward)) for answer, reward in zip(answers, rewards, strict=True)
        ]

    def _scores(self, model: Any) -> TranscriptScores:
        return score_transcripts(model, self.fixed.transcripts, name=self.fixed.name)
