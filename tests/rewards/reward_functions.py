"""Rewards that the tests probe, each with one property."""

from __future__ import annotations

import os
import re
import sys
import time
from typing import Any


def exact(completion: str, answer: str) -> float:
    tags = re.findall(r"<answer>(.*?)</answer>", completion, re.DOTALL)
    return float(len(tags) == 1 and tags[0].strip() == answer)


def contains(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [float(gold in text) for text, gold in zip(completions, answer, strict=True)]


def conversational(completions: list[list[dict[str, str]]], solution: list[str], **_: Any) -> list[float]:
    assert isinstance(completions[0], list)
    return [
        2.0 * (m[-1]["content"].strip() == gold) - 1.0 for m, gold in zip(completions, solution, strict=True)
    ]


async def asynchronous(solution_str: str, ground_truth: str, data_source: str) -> dict[str, float]:
    assert data_source
    return {"score": float(solution_str.strip() == ground_truth)}


def without_answer(completions: list[str]) -> list[float]:
    return [float(text.startswith("<think>")) for text in completions]


def empty_is_best(completion: str, answer: str) -> float:
    return 1.0 if not completion.strip() else float(completion.strip() == answer)


def counts_pieces(completion: str, answer: str) -> float:
    """Half of the answer is worth more than the answer."""
    return (
        2.0
        if answer.startswith(completion) and 0 < len(completion) < len(answer)
        else float(completion == answer)
    )


def gives_nan(completion: str, answer: str) -> float:
    return float("nan") if not completion else float(completion.strip() == answer)


def hangs(completion: str, answer: str) -> float:
    if "spaces" not in completion and completion.count(" ") > 10_000:
        time.sleep(60)
    return float(completion.strip() == answer)


def exits(completion: str, answer: str) -> float:
    if not completion:
        os._exit(3)
    print("noise on standard output", file=sys.stdout)
    return float(completion.strip() == answer)


def strict_spaces(completion: str, answer: str) -> float:
    return float(completion == answer)


def raises(completion: str, answer: str) -> float:
    raise KeyError(answer)


def skips(completions: list[str], answer: list[str]) -> list[None]:
    return [None for _ in completions]


def not_a_number(completion: str, answer: str) -> float:
    return float("nan")


def upside_down(completion: str, answer: str) -> float:
    return float(completion.strip() != answer)


def text_result(completion: str, answer: str) -> str:
    return "good"


def too_few(completions: list[str], answer: list[str]) -> list[float]:
    return [1.0]


def no_completion(rows: list[str]) -> float:
    return 0.0


not_a_function = 3
