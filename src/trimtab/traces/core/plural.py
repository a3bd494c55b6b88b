"""Counts in words."""

from __future__ import annotations

import re

_NOUNS = (
    "episode|result|call|message|record|step|span|sample|score|attempt|prompt|part|row|line|value|run|file"
)
_HEAD = re.compile(rf"^((?:\w+ )?(?:{_NOUNS}))s\b")
_VERBS = {"are": "is", "have": "has", "answer": "answers", "differ": "differs", "tell": "tells",
    "repeat": "repeats", "keep": "keeps"}  # fmt: skip
_VERB = re.compile(rf"^(\S+(?: \S+)?(?: of [\w-]+)? that) ({'|'.join(_VERBS)})\b")


def counted(count: int, noun: str) -> str:
    """A count with its noun.

    >>> counted(1, "malformed line"), counted(2_000, "episode"), counted(0, "call")
    ('1 malformed line', '2,000 episodes', '0 calls')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def noted(count: int, note: str) -> str:
    """A note of the readers, which speak of many, with its count.

    >>> noted(2, "episodes without an episode_end"), noted(1, "episodes without an episode_end")
    ('2 episodes without an episode_end', '1 episode without an episode_end')
    >>> noted(1, "tool results that answer no call, kept as turns")
    '1 tool result that answers no call, kept as turns'
    """
    if count == 1 and _HEAD.match(note):
        note = _HEAD.sub(r"\1", note)
        note = _VERB.sub(lambda match: f"{match[1]} {_VERBS[match[2]]}", note)
    return f"{count:,} {note}"
