"""Traits of an answer: what can be counted of its text without a judge.

Tool calls are those of Hermes' tags (`<tool_call>{"name": ..., "arguments": ...}</tool_call>`) and an
answer that is one JSON object with a name and arguments. A loop with another form of calls counts them
itself (`Answer.num_calls`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trimtab.snapshots.refusal_phrases import is_refusal
from trimtab.snapshots.snapshot_records import Answer
from trimtab.traces.core.json_text import BadJson, parse_json
from trimtab.traces.messages.tool_tags import tagged_turns
from trimtab.typing import Float64

_FENCE = re.compile(r"```[\w+-]*\n(.*?)\n?```", re.S)
_ANSWER_TAG = re.compile(r"<answer>.*?</answer>|\\boxed\{|^#### ", re.S | re.M)
_GRAM = 3
_MIN_WORDS = 8
"""Shorter answers repeat nothing (default, not calibrated)."""


class Trait(NamedTuple):
    """One trait: its name, its unit, and whether it is yes or no."""

    name: str
    unit: str
    binary: bool


TRAITS: tuple[Trait, ...] = (
    Trait("refusal", "fraction", True),
    Trait("length", "tokens", False),
    Trait("truncated", "fraction", True),
    Trait("empty", "fraction", True),
    Trait("tool_call", "fraction", True),
    Trait("malformed_call", "fraction", True),
    Trait("json", "fraction", True),
    Trait("code_fence", "fraction", True),
    Trait("answer_tag", "fraction", True),
    Trait("repetition", "fraction of 3-grams", False),
    Trait("shared_answer", "fraction", True),
    Trait("reward", "reward", False),
)
"""Traits of answers, in the order in which views show them."""


def traits_of(answers: Sequence[Answer]) -> dict[str, Float64]:
    """Return the traits of N answers.

    Args:
        answers: One snapshot's answers, in the order of its prompts.

    Returns:
        Trait -> (N,) values, 0 or 1 for yes or no; nan where the trait was not observed (a reward that nobody
            computed). `shared_answer` is 1 where another prompt got the very same answer: the policy no
            longer depends on its input.

    Example:
        >>> traits_of([Answer("I cannot help with that.", 6), Answer("42", 1)])["refusal"].tolist()
        [1.0, 0.0]
    """
    counts = Counter(answer.text.strip() for answer in answers)
    rows = [_traits(answer, counts[answer.text.strip()]) for answer in answers]
    return {trait.name: np.array([row[trait.name] for row in rows], np.float64) for trait in TRAITS}


def _traits(answer: Answer, times: int) -> dict[str, float]:
    text = answer.text.strip()
    calls, malformed = calls_of(answer)
    return {
        "refusal": is_refusal(text),
        "length": answer.num_tokens,
        "truncated": np.nan if not answer.stop_reason else answer.stop_reason == "length",
        "empty": not text,
        "tool_call": calls > 0,
        "malformed_call": malformed > 0,
        "json": _is_json(text),
        "code_fence": "```" in text,
        "answer_tag": _ANSWER_TAG.search(text) is not None,
        "repetition": repetition(text),
        "shared_answer": times > 1,
        "reward": np.nan if answer.reward is None else answer.reward,
    }


def calls_of(answer: Answer) -> tuple[int, int]:
    """Return the tool calls of an answer, and how many of them are malformed.

    Args:
        answer: Its own counts are used where the loop gave them.

    Returns:
        Calls, the malformed ones included, and malformed calls: no JSON, no name, or a tag that is not
        closed.

    Example:
        >>> calls_of(Answer('<tool_call>{"name": "add", "arguments": {}}</tool_call>', 9))
        (1, 0)
        >>> calls_of(Answer('<tool_call>{"name": "add", ', 9))
        (1, 1)
    """
    if answer.num_calls is not None:
        return answer.num_calls, min(answer.num_malformed_calls, answer.num_calls)
    text = answer.text.strip()
    if "<tool_call>" in text:
        calls = [call for turn in tagged_turns(text) for call in turn.calls]
        broken = sum(call.error_from == "parse" for call in calls)
        unclosed = text.count("<tool_call>") - text.count("</tool_call>")
        return len(calls), min(len(calls), max(broken, unclosed))
    value = _json_of(text)
    named = isinstance(value, dict) and isinstance(value.get("name"), str)
    return int(named and isinstance(value, dict) and ("arguments" in value or "parameters" in value)), 0


def repetition(text: str) -> float:
    """Return the fraction of a text's 3-grams of words that came before in it; 0 below eight words.

    >>> repetition("a b c a b c a b c"), repetition("the cat sat on the mat and the dog did not")
    (0.5714285714285714, 0.0)
    """
    words = text.split()
    if len(words) < _MIN_WORDS:
        return 0.0
    grams = list(zip(*(words[i:] for i in range(_GRAM)), strict=False))
    return 1.0 - len(set(grams)) / len(grams)


def _is_json(text: str) -> bool:
    return isinstance(_json_of(text), (dict, list))


def _json_of(text: str) -> object:
    fenced = _FENCE.fullmatch(text)
    inside = (fenced[1] if fenced else text).strip()
    if inside[:1] not in ("{", "["):
        return None
    try:
        return parse_json(inside)
    except BadJson:
        return None
