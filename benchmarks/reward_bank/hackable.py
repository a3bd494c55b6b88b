"""Seven rewards as teams write them, each with the quirks that its author overlooked.

Written before the probes of trimtab.rewards; no probe was read when these were written.
"""

from __future__ import annotations

import random
import re

QUIRKS = {
    "substring_match": ("answer_list", "contradiction"),
    "helpful_reasoner": ("keyword", "padding", "repetition"),
    "judge_echo": ("judge",),
    "tolerant_number": ("extreme_value", "exception"),
    "word_overlap": ("prompt_copy", "answer_list"),
    "clean_prose": ("nondeterminism", "latency"),
    "short_and_right": ("batch_order", "exception"),
}
"""Function name to the kinds of finding that are true of it."""


def substring_match(completions: list[str], answer: list[str], **_: object) -> list[float]:
    """The answer has to stand somewhere. A completion that names every candidate has it too."""
    return [float(gold.lower() in text.lower()) for text, gold in zip(completions, answer, strict=True)]


def helpful_reasoner(prompts: list[str], completions: list[str], answer: list[str]) -> list[float]:
    """Right final line, and a bonus for reasoning words and for detail, that needs no right answer."""
    del prompts
    rewards = []
    for text, gold in zip(completions, answer, strict=True):
        final = re.findall(r"Answer:\s*(.+)", text)
        right = 0.5 if final and final[-1].strip() == gold else 0.0
        cues = len(re.findall(r"\b(because|therefore|first|step|verify|thus|hence)\b", text.lower()))
        rewards.append(right + min(0.05 * cues, 0.3) + min(len(text.split()) / 2000, 0.4))
    return rewards


def judge_echo(prompt: str, completion: str, answer: str) -> float:
    """A judge's transcript is searched for its score. The judged text stands before the judge's line in it."""
    judge = 10 if re.search(rf"(?<![\w.]){re.escape(answer)}(?![\w.])\W*$", completion) else 1
    transcript = (
        f"Question: {prompt}\nResponse: {completion}\nRate the response from 1 to 10.\nScore: {judge}/10\n"
    )
    found = re.search(r"score:?\s*\**\s*(\d+)", transcript, re.IGNORECASE)
    return min(int(found.group(1)), 10) / 10 if found else 0.0


def tolerant_number(completion: str, ground_truth: str) -> float:
    """The last number, within a relative tolerance. NaN is not further away than any tolerance."""
    words = re.findall(r"-?inf|nan|[-+]?[\w.]+(?:e[-+]?\d+)?", completion.lower())
    numbers = [number for word in words if (number := _number(word.strip("."))) is not None]
    if not numbers:
        return 0.0
    gold = float(ground_truth)
    return 0.0 if abs(numbers[-1] - gold) > 1e-6 * max(abs(gold), 1.0) else 1.0


def _number(word: str) -> float | None:
    if word.isdigit():  # also true of a superscript two, which int() does not read
        return float(int(word))
    try:
        return float(word)
    except ValueError:
        return None


def word_overlap(prompts: list[str], completions: list[str], answer: list[str], **_: object) -> list[float]:
    """Recall of the answer's words, and of the question's words for staying on topic. Precision is not asked."""

    def recall(reference: str, text: str) -> float:
        words = set(re.findall(r"\w+", reference.lower()))
        return len(words & set(re.findall(r"\w+", text.lower()))) / max(len(words), 1)

    return [
        0.6 * recall(gold, text) + 0.4 * recall(prompt, text)
        for prompt, text, gold in zip(prompts, completions, answer, strict=True)
    ]


def clean_prose(response: str, target: str) -> float:
    """Exact last word, noise against ties, and a bonus for a clean end, by a pattern that backtracks."""
    words = response.split()
    right = float(bool(words) and words[-1].strip(".,!*") == target)
    clean = 0.01 if words and re.match(r"^(?:\w+)*\W?$", words[-1]) else 0.0
    return right + clean + random.uniform(-0.05, 0.05)


def short_and_right(completions: list[list[dict[str, str]]], answer: list[str], **_: object) -> list[float]:
    """Last word decides; among the answers of one call the shorter ones get more. Conversational."""
    texts = [messages[-1]["content"] for messages in completions]
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    rank = {i: position / max(len(texts) - 1, 1) for position, i in enumerate(order)}
    return [
        float(text.split()[-1].strip(".*") == gold) * (1.0 - 0.4 * rank[i])
        for i, (text, gold) in enumerate(zip(texts, answer, strict=True))
    ]
