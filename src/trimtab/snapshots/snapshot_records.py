"""Snapshot: answers to fixed prompts and scores of fixed transcripts at one step; as a row and back.

A row of the run folder holds all of a snapshot in one line, so a killed process loses at most the one it
was taking. Per-token numbers are packed: base64 of zlib of little-endian arrays.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trimtab.errors import RunError
from trimtab.typing import Bool, Float64, Int64

Row = dict[str, Any]

MAX_ANSWER = 8_000
"""Characters of an answer that are stored (default, not calibrated)."""
MAX_PROMPT = 300
"""Characters of a prompt that are stored; its key is of the whole."""
_MAX_TOKENS = 4_000_000  # of all transcripts of a row; more is not a row of ours


@dataclass(frozen=True)
class SnapshotPrompt:
    """One fixed prompt. `post_tool`: it ends behind a tool result, so its answer is what follows a tool."""

    text: str
    post_tool: bool = False

    @property
    def key(self) -> str:
        """Eight hex digits of the whole text, which pair prompts of two snapshots."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


@dataclass(frozen=True)
class Answer:
    """What a policy wrote to one prompt.

    Example:
        >>> Answer("It is 42.", num_tokens=5, stop_reason="eos", reward=1.0).num_calls is None
        True
    """

    text: str
    num_tokens: int
    stop_reason: str = ""
    """"eos", "length" or a word of the loop's own; empty: not known."""
    reward: float | None = None
    num_calls: int | None = None
    """Tool calls, where the loop counts them; None: they are read off the text."""
    num_malformed_calls: int = 0


@dataclass(frozen=True, eq=False)
class TranscriptScores:
    """Scores of the agent's own tokens of B fixed transcripts, N tokens in all, one transcript after the
    other.

    Example:
        >>> import numpy as np
        >>> logprobs, after_tool = np.array([-0.5, -1.0, -2.0]), np.array([False, True, False])
        >>> scores = TranscriptScores(np.array([2, 1]), logprobs, after_tool)
        >>> scores.owner.tolist()
        [0, 0, 1]
    """

    lengths: Int64
    """(B,) scored tokens of each transcript."""
    logprobs: Float64
    """(N,) in nats."""
    post_tool: Bool
    """(N,) the token was written after a tool result."""
    entropy: Float64 | None = None
    """(N,) of the distribution each token was drawn from, in nats; None where nobody computed it."""
    name: str = field(default="")
    """Which transcripts these are; scores of two names are not compared."""

    def __post_init__(self) -> None:
        """Refuse columns of different lengths."""
        total = int(np.sum(self.lengths))
        columns = [self.logprobs, self.post_tool, *([] if self.entropy is None else [self.entropy])]
        if any(np.shape(column) != (total,) for column in columns) or np.any(np.asarray(self.lengths) < 0):
            raise RunError(
                f"scores of transcripts: lengths name {total} tokens, and the columns have other shapes"
            )

    @property
    def owner(self) -> Int64:
        """(N,) the transcript of each token, from 0."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The behaviour of a policy after `step` updates."""

    step: int
    prompts: tuple[SnapshotPrompt, ...]
    keys: tuple[str, ...]
    answers: tuple[Answer, ...]
    scores: TranscriptScores | None = None
    seconds: float = math.nan


def snapshot_row(
    step: int,
    prompts: Sequence[SnapshotPrompt],
    answers: Sequence[Answer],
    scores: TranscriptScores | None = None,
    seconds: float = math.nan,
) -> Row:
    """Return the row of a snapshot. Raises RunError where answers and prompts differ in number."""
    if len(prompts) != len(answers):
        raise RunError(
            f"a snapshot of {len(prompts)} prompts has {len(answers)} answers; give one a prompt, in order"
        )
    return {
        "step": int(step),
        "time": round(time.time(), 1),
        "seconds": round(seconds, 3),
        "prompts": [[prompt.key, int(prompt.post_tool), prompt.text[:MAX_PROMPT]] for prompt in prompts],
        "answers": [
            [a.text[:MAX_ANSWER], a.num_tokens, a.stop_reason, a.reward, a.num_calls, a.num_malformed_calls]
            for a in answers
        ],
        "transcripts": None if scores is None else _score_fields(scores),
    }


def snapshot_from_row(row: Mapping[str, Any]) -> Snapshot:
    """Inverse of `snapshot_row`. Raises RunError for a row that is not one."""
    try:
        prompts = tuple(SnapshotPrompt(str(text), bool(after)) for _, after, text in row["prompts"])
        answers = tuple(_answer(*item) for item in row["answers"])
        keys = tuple(str(item[0]) for item in row["prompts"])
        stored = row["transcripts"]
        scores = None if stored is None else _scores(stored)
        seconds = row.get("seconds")
        number = float(seconds) if isinstance(seconds, (int, float)) else math.nan
        if len(prompts) != len(answers):
            raise ValueError(f"{len(prompts)} prompts and {len(answers)} answers")
        return Snapshot(int(row["step"]), prompts, keys, answers, scores, number)
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error, zlib.error) as error:
        raise RunError(f"the snapshot of step {row.get('step')} is damaged: {error}") from error


def _answer(text: Any, num_tokens: Any, stop: Any, reward: Any, calls: Any, malformed: Any) -> Answer:
    return Answer(
        str(text), int(num_tokens), str(stop), None if reward is None else float(reward),
        None if calls is None else int(calls), int(malformed),
    )  # fmt: skip


def _score_fields(scores: TranscriptScores) -> Row:
    entropy = None if scores.entropy is None else _packed(scores.entropy, "<f2")
    return {
        "name": scores.name,
        "lengths": np.asarray(scores.lengths).tolist(),
        "logprobs": _packed(scores.logprobs, "<f4"),
        "post_tool": _packed(np.packbits(scores.post_tool), "u1"),
        "entropy": entropy,
    }


def _scores(stored: Mapping[str, Any]) -> TranscriptScores:
    lengths = np.array(stored["lengths"], np.int64).reshape(-1)
    total = int(lengths.sum())
    if lengths.size and (lengths.min() < 0 or total > _MAX_TOKENS):
        raise ValueError("lengths of transcripts out of range")
    bits = _unpacked(stored["post_tool"], "u1", -(-total // 8))
    entropy = (
        None if stored["entropy"] is None else _unpacked(stored["entropy"], "<f2", total).astype(np.float64)
    )
    logprobs = _unpacked(stored["logprobs"], "<f4", total).astype(np.float64)
    post_tool = np.unpackbits(bits.astype(np.uint8))[:total].astype(np.bool_)
    return TranscriptScores(lengths, logprobs, post_tool, entropy, str(stored["name"]))


def _packed(values: Any, dtype: str) -> str:
    with np.errstate(over="ignore"):
        return base64.b64encode(zlib.compress(np.asarray(values).astype(dtype).tobytes(), 6)).decode()


def _unpacked(text: str, dtype: str, count: int) -> Any:
    size = count * np.dtype(dtype).itemsize
    data = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), size + 1)
    if len(data) != size:
        raise ValueError(f"packed numbers have another length than {count}")
    return np.frombuffer(data, dtype)
