"""Now and then, encode the decoded text of a few sequences again: does it give the ids that were sampled?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.monitor import Run

_ROWS = 4
_TOKENS = 512


class Reencoder:
    """Every `every` steps (0: never) the first turns of up to 4 sequences, at most 512 tokens of each.

    A first turn ends at the first tool result: what follows was put together by the chat template, not by the model.
    """

    def __init__(self, trainer: Any, run: Run, every: int) -> None:
        self.run, self.every, self.last = run, every, -1
        self.tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)

    def look(self, step: int, batch: Mapping[str, Any]) -> None:
        """Compare rows of a step's first micro-batch when the step is due."""
        if not self.every or step == self.last or step % self.every:
            return
        self.last = step
        ids = batch["completion_ids"][:_ROWS].tolist()
        mask = batch["completion_mask"][:_ROWS]
        if batch.get("tool_mask") is not None:
            mask = mask * batch["tool_mask"][:_ROWS]
        for row, own in zip(ids, mask.bool().tolist(), strict=True):
            length = own.index(False) if False in own else len(own)
            sampled = row[: min(length, _TOKENS)]
            if sampled:
                text = self.tokenizer.decode(
                    sampled, skip_special_tokens=False, clean_up_tokenization_spaces=False
                )
                self.run.retokenised(sampled, self.tokenizer(text, add_special_tokens=False)["input_ids"])
