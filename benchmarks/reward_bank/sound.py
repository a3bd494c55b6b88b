"""Three rewards without a quirk above information: one place for the answer, an exact comparison, any text survives.

Written before the probes of trimtab.rewards; no probe was read when these were written.
"""

from __future__ import annotations

import json
import re


def one_tag(prompts: list[str], completions: list[str], answer: list[str], **_: object) -> list[float]:
    """The text between the only pair of answer tags, compared exactly; two pairs earn nothing."""
    del prompts
    rewards = []
    for text, gold in zip(completions, answer, strict=True):
        tagged = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
        rewards.append(1.0 if len(tagged) == 1 and tagged[0].strip() == gold.strip() else 0.0)
    return rewards


def final_line(completion: str, answer: str) -> float:
    """The last line that is not blank has to be `Answer: X`, and X the answer."""
    lines = [line.strip() for line in completion.splitlines() if line.strip()]
    if not lines:
        return 0.0
    given = re.fullmatch(r"Answer:\s*(.+)", lines[-1])
    return 1.0 if given and given.group(1).strip() == answer.strip() else 0.0


def json_answer(completions: list[list[dict[str, str]]], answer: list[str], **_: object) -> list[float]:
    """The last message is one JSON object; its only key is `answer`. Conversational."""
    rewards = []
    for messages, gold in zip(completions, answer, strict=True):
        try:
            value = json.loads(messages[-1]["content"])
        except ValueError:
            value = None
        right = isinstance(value, dict) and list(value) == ["answer"] and str(value["answer"]) == gold
        rewards.append(1.0 if right else 0.0)
    return rewards
