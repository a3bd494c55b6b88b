"""Snapshots of made policies with known differences."""

from __future__ import annotations

import numpy as np

from trimtab.snapshots import Answer, Snapshot, SnapshotPrompt, TranscriptScores

REFUSAL = "I'm sorry, but I can't help with that."


def prompts(count: int = 24) -> tuple[SnapshotPrompt, ...]:
    return tuple(SnapshotPrompt(f"question {i}", post_tool=i % 3 == 0) for i in range(count))


def scores(rng: np.random.Generator, shift: float = 0.0, transcripts: int = 10) -> TranscriptScores:
    """Transcripts of 12 tokens, the last half after a tool; `shift` is added to every log-probability there."""
    post_tool = np.tile(np.arange(12) >= 6, transcripts)
    logprobs = -rng.gamma(2.0, 0.5, 12 * transcripts) + shift * post_tool
    entropy = rng.gamma(2.0, 0.3, 12 * transcripts)
    return TranscriptScores(np.full(transcripts, 12), logprobs, post_tool, entropy, "made")


def snapshot(step: int, answers: list[Answer], scored: TranscriptScores | None = None) -> Snapshot:
    fixed = prompts(len(answers))
    return Snapshot(step, fixed, tuple(one.key for one in fixed), tuple(answers), scored)


def noise(rng: np.random.Generator, count: int = 24) -> list[Answer]:
    """Answers of one policy, sampled: lengths, stops and refusals are chance."""
    return [
        Answer(
            REFUSAL if rng.random() < 0.3 else f"It is {i}, and that is all there is to say.",
            int(rng.integers(5, 40)),
            "length" if rng.random() < 0.2 else "eos",
            float(rng.random()),
        )
        for i in range(count)
    ]
