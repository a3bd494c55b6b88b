"""The lab's reward as a launch check probes it, and a revision that pays for more than the answer."""

from __future__ import annotations


def exact(completion: str, answer: str) -> float:
    """1.0 where the text is the answer, as `trimtab.lab.tasks.correct_reward`."""
    return float(completion.strip() == answer)


def contains(completion: str, answer: str) -> float:
    """1.0 where the answer is somewhere in the text: a list of all answers is paid too."""
    return float(answer in completion)
