"""Take a snapshot: ask the loop for answers and scores, check them, and put the random numbers back.

Python's and numpy's global generators are put back afterwards. Those of torch are the business of who calls
a model (`trimtab.adapters.snapshots.undisturbed`), as is the training mode of its modules.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from trimtab.errors import RunError
from trimtab.runs.schema import whole_number
from trimtab.snapshots.snapshot_records import Answer, SnapshotPrompt, TranscriptScores, snapshot_row


def taken_row(
    step: int,
    prompts: Sequence[str | SnapshotPrompt],
    generate: Callable[[Sequence[str]], Sequence[str | Answer]],
    score: Callable[[], TranscriptScores] | None = None,
) -> dict[str, Any]:
    """Return the row of a snapshot that is taken now.

    Args:
        step: Updates that the policy has seen.
        prompts: The fixed prompts, at least one.
        generate: Takes the prompts' texts and returns one answer each; a plain text is counted in words.
        score: Returns the scores of the fixed transcripts.

    Returns:
        The row, for `RunWriter.write("snapshots", [row])`.

    Raises:
        RunError: There are no prompts, an answer is missing, or one is neither text nor an `Answer`.

    Example:
        >>> taken_row(3, ["2+2?"], lambda texts: ["4" for _ in texts])["answers"][0][:2]
        ['4', 1]
    """
    number = whole_number("step of a snapshot", step, 0)
    fixed = [
        prompt if isinstance(prompt, SnapshotPrompt) else SnapshotPrompt(str(prompt)) for prompt in prompts
    ]
    if not fixed:
        raise RunError("a snapshot needs prompts; give the same ones each time, some 20 or more")
    start = time.perf_counter()
    with same_random_numbers():
        answers = [_as_answer(value) for value in generate([prompt.text for prompt in fixed])]
        scores = None if score is None else score()
    if scores is not None and not isinstance(scores, TranscriptScores):
        raise RunError(f"score of a snapshot returned {type(scores).__name__}; return TranscriptScores")
    return snapshot_row(number, fixed, answers, scores, time.perf_counter() - start)


@contextmanager
def same_random_numbers() -> Iterator[None]:
    """Put Python's and numpy's global generators back after the block."""
    state, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002 (the user's global state)
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(numbers)  # noqa: NPY002


def _as_answer(value: str | Answer) -> Answer:
    if isinstance(value, Answer):
        return value
    if not isinstance(value, str):
        raise RunError(f"generate of a snapshot returned {type(value).__name__}; return texts or Answers")
    return Answer(value, num_tokens=len(value.split()))
