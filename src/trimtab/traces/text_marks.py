"""What the agent's words look like: a refusal, another script than the one it was spoken to in. Rules of thumb, not judgements."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trimtab.traces.episode import Episode, Turn

__all__ = ["MARKS", "MIN_LETTERS", "refuses", "scripts_of", "switched_turns"]

MARKS = ("refusals", "switches")
"""Columns of `TraceTable.marks`: assistant turns that open as a refusal, or bring in a script of their own."""

MIN_LETTERS = 10
"""Letters of a script that make it one of a turn's: a name or a unit is no switch."""

_HEAD, _LOOKED_AT = 240, 20_000  # characters of a turn
_REFUSAL = re.compile(
    r"(?:^|[.!\n]\s*)(?:i['’]?m |i am )?(?:(?:very |so |really )?sorry[,.]? (?:but )?)?(?:unfortunately[,]? )?(?:"
    r"i (?:can(?:['’]t|not)|am (?:not able|unable)|won['’]t|will not|must decline|have to decline|refuse)(?: to)? "
    r"(?:assist|help|comply|provide|do that|do this|fulfil|continue|complete|answer|create|support|engage|proceed|discuss|share)"
    r"|as an ai(?: language)? model)",
    re.I,
)
_SCRIPTS = {
    "Latin": "A-Za-z\u00c0-\u024f", "Greek": "\u0370-\u03ff", "Cyrillic": "\u0400-\u04ff", "Hebrew": "\u0590-\u05ff",
    "Arabic": "\u0600-\u06ff", "Devanagari": "\u0900-\u097f", "Thai": "\u0e00-\u0e7f", "Hangul": "\uac00-\ud7af",
    "Chinese or Japanese": "\u3040-\u30ff\u4e00-\u9fff",
}  # fmt: skip
_COUNTED = {name: re.compile(f"[{letters}]") for name, letters in _SCRIPTS.items()}


def refuses(text: str) -> bool:
    """Does the text open as a refusal? English phrases only, in its first 240 characters.

    >>> refuses("I'm sorry, but I can't help with that."), refuses("I can't find row 7."), refuses("")
    (True, False, False)
    """
    return _REFUSAL.search(text[:_HEAD]) is not None


def scripts_of(text: str, least: int = MIN_LETTERS) -> set[str]:
    """The scripts with at least `least` letters in the first 20,000 characters.

    >>> sorted(scripts_of("Прогноз погоды: sunny")), sorted(scripts_of("the weather is 天気", 2))
    (['Cyrillic'], ['Chinese or Japanese', 'Latin'])
    """
    text = text[:_LOOKED_AT]
    if text.isascii():
        return {"Latin"} if len(_COUNTED["Latin"].findall(text)) >= least else set()
    return {name for name, letters in _COUNTED.items() if len(letters.findall(text)) >= least}


def switched_turns(episode: Episode) -> Iterator[tuple[Turn, str]]:
    """Assistant turns with a script that nobody used before: not in a message to the agent, a result, or its own earlier words.

    A turn before which there was no letter at all switches nothing. Languages of one script are not told apart.
    """
    known: set[str] = set()
    for turn in episode.turns:
        text = turn.content or ""
        if turn.role == "assistant":
            mine = scripts_of(text)
            fresh = mine - known if known else set()
            if fresh:
                yield turn, min(fresh)
            known |= mine
        else:
            known |= scripts_of(text, 1)
        for call in turn.calls:
            known |= scripts_of(call.result or "", 1)
