"""Formats that rewards look for an answer in, and which of them a reward accepts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab.typing import Float64

SLOT = "{answer}"


@dataclass(frozen=True)
class AnswerFormat:
    """A text with one place for the answer."""

    name: str
    template: str

    def fill(self, answer: str) -> str:
        """Return the text with this answer."""
        return self.template.replace(SLOT, answer)


_THOUGHT = "I read the question and work it out."
FORMATS = (
    AnswerFormat("plain", SLOT),
    AnswerFormat("sentence", f"The answer is {SLOT}."),
    AnswerFormat("bold", f"**{SLOT}**"),
    AnswerFormat("answer line", f"Answer: {SLOT}"),
    AnswerFormat("final answer line", f"Final Answer: {SLOT}"),
    AnswerFormat("math sentence", f"The final answer is ${SLOT}$. I hope it is correct."),
    AnswerFormat("boxed", f"\\boxed{{{SLOT}}}"),
    AnswerFormat("boxed in a sentence", f"The answer is $\\boxed{{{SLOT}}}$."),
    AnswerFormat("hashes", f"{_THOUGHT}\n#### {SLOT}"),
    AnswerFormat("answer tag", f"<answer>{SLOT}</answer>"),
    AnswerFormat("think, plain", f"<think>\n{_THOUGHT}\n</think>\n{SLOT}"),
    AnswerFormat("think, boxed", f"<think>\n{_THOUGHT}\n</think>\nThe answer is \\boxed{{{SLOT}}}"),
    AnswerFormat("think, answer tag", f"<think>{_THOUGHT}</think> <answer>{SLOT}</answer>"),
    AnswerFormat("think, solution tag", f"<think>{_THOUGHT}</think><solution>{SLOT}</solution>"),
    AnswerFormat(
        "reasoning and answer tags",
        f"<reasoning>\n{_THOUGHT}\n</reasoning>\n<answer>\n{SLOT}\n</answer>\n",
    ),
    AnswerFormat("JSON", f'{{"answer": "{SLOT}"}}'),
    AnswerFormat("fenced JSON", f'```json\n{{"answer": "{SLOT}"}}\n```'),
    AnswerFormat("code block", f"```python\n{SLOT}\n```"),
)
UNMARKED = ("plain", "sentence")
"""Formats without any mark-up: what a wrong answer looks like that does not care for the format."""


@dataclass(frozen=True)
class FormatScore:
    """What a reward gives for right and wrong answers in one format, a value a task (NaN: none)."""

    format: AnswerFormat
    right: Float64
    wrong: Float64

    @property
    def gap(self) -> float:
        """Mean of right minus wrong over tasks; NaN without any."""
        return mean_of(self.right - self.wrong)


def mean_of(values: Float64) -> float:
    """Return the mean of the finite values, NaN without any."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else float("nan")


def best_format(scores: list[FormatScore]) -> FormatScore:
    """Return the format that tells right from wrong best; of those within 5 % the best paid."""
    gaps = [score.gap if np.isfinite(score.gap) else -np.inf for score in scores]
    top = max(gaps)
    near = [score for score, gap in zip(scores, gaps, strict=True) if gap >= top - 0.05 * abs(top)]
    pays = [mean_of(score.right) for score in near]
    return near[int(np.nanargmax(pays))] if np.isfinite(pays).any() else near[0]
