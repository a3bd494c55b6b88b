"""What the agent's words look like: a refusal, another script than the one it was spoken to in. Rules of
thumb, not judgements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import numpy as np

from trimtab.traces.core.episode import Episode, Turn
from trimtab.typing import Array

MARKS = ("refusals", "switches")
"""Columns of `TraceTable.marks`: assistant turns that open as a refusal, or bring in a script of their
own."""

MIN_LETTERS = 10
"""Letters of a script that make it one of a turn's: a name or a unit is not a switch."""

IN_A_ROW = 7
"""Latin words with nothing but blanks or a sentence's marks between them that make a turn Latin: names,
titles and commands have fewer."""
BETWEEN = r"[,;:.!?]?[ \t\r\n]+"
"""What may stand between them, for re and RE2."""

REFUSAL_HEAD, LOOKED_AT = 240, 20_000
"""Characters of a turn that are looked at, for a refusal and for letters."""

_WHAT = r"(?:assist|help(?! but)|comply|provide|do (?:that|this)|fulfil|answer|create|support|engage|discuss|share)"  # noqa: E501
_REFUSAL = re.compile(
    r"(?:^|[.!\n]\s*)[*_]*(?:(?:(?:i['’]?m |i am )?(?:(?:very |so |really )?sorry)|i "
    r"apologi[sz]e)[*_]*[,.]? ?(?:but )?)?(?:unfortunately[,]? )?(?:"
    r"i (?:can(?:['’]t|not| not)|am (?:not able|unable)|won['’]t|will not|must decline|have to "
    r"decline|refuse)(?: to)? "
    rf"{_WHAT}|i['’]m (?:not able|unable) to {_WHAT}|as an ai(?: language)? model)",
    re.I | re.A,
)
REFUSAL_WORDS = (
    "i can", "i am", "i won", "i will not", "i must decline", "i have to decline", "i refuse", "m not able",
    "m unable", "as an ai",
)  # fmt: skip
"""One of them, case aside, is in every refusal's head."""

SCRIPTS = {
    "Latin": ((0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x24F)), "Greek": ((0x370, 0x3FF),),
    "Cyrillic": ((0x400, 0x4FF),),
    "Hebrew": ((0x590, 0x5FF),), "Arabic": ((0x600, 0x6FF),), "Devanagari": ((0x900, 0x97F),),
    "Thai": ((0xE00, 0xE7F),),
    "Hangul": ((0xAC00, 0xD7AF),), "Chinese or Japanese": ((0x3040, 0x30FF), (0x4E00, 0x9FFF)),
}  # fmt: skip
"""Name -> first and last character of each of its spans."""

_LATIN = "[" + "".join(f"{chr(low)}-{chr(high)}" for low, high in SCRIPTS["Latin"]) + "]"
_IN_A_ROW = re.compile(rf"{_LATIN}{BETWEEN}(?:{_LATIN}+{BETWEEN}){{{IN_A_ROW - 2}}}{_LATIN}")


def refuses(text: str) -> bool:
    """Does the text open as a refusal? English phrases only, in its first 240 characters.

    >>> refuses("I'm sorry, but I can't help with that."), refuses("I can't find row 7."), refuses("")
    (True, False, False)
    """
    head = text[:REFUSAL_HEAD]
    low = head.lower()
    return any(words in low for words in REFUSAL_WORDS) and _REFUSAL.search(head) is not None


def scripts_of(text: str, min_letters: int = MIN_LETTERS) -> set[str]:
    """The scripts with at least `min_letters` letters in the first 20,000 characters.

    >>> sorted(scripts_of("Прогноз погоды: sunny")), sorted(scripts_of("the weather is 天気", 2))
    (['Cyrillic'], ['Chinese or Japanese', 'Latin'])
    """
    text = text[:LOOKED_AT]
    if text.isascii():
        return {"Latin"} if _ascii_letters(min_letters).match(text) else set()
    units = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), np.uint16)
    counts = np.bincount(_script_codes()[units], minlength=len(SCRIPTS) + 1)[1:].tolist()
    return {name for name, count in zip(SCRIPTS, counts, strict=True) if count >= min_letters}


@cache
def _script_codes() -> Array:
    """Return, of each UTF-16 unit, the number of its script from 1; 0 for none."""
    codes = np.zeros(2**16, np.intp)
    for number, spans in enumerate(SCRIPTS.values(), 1):
        for low, high in spans:
            codes[low : high + 1] = number
    return codes


@cache
def _ascii_letters(min_letters: int) -> re.Pattern[str]:
    """Match a text from its start up to the Latin letter with this number."""
    return re.compile(f"(?:[^A-Za-z]*[A-Za-z]){{{min_letters}}}")


def _only_of(known: set[str], text: str) -> bool:
    """Has the text letters of known scripts only?"""
    if text.isascii():
        return "Latin" in known
    return _others(frozenset(known)).search(text, 0, LOOKED_AT) is None


@cache
def _others(known: frozenset[str]) -> re.Pattern[str]:
    """Match a letter of any other script."""
    spans = [span for name, some in SCRIPTS.items() if name not in known for span in some]
    letters = "".join(f"{chr(low)}-{chr(high)}" for low, high in spans)
    return re.compile(f"[{letters}]" if letters else r"(?!)")


def _brought_in(text: str) -> set[str]:
    """The scripts of a turn of the agent's; Latin only where words of it stand in a row."""
    mine = scripts_of(text)
    return mine if "Latin" not in mine or _IN_A_ROW.search(text[:LOOKED_AT]) else mine - {"Latin"}


def switched_turns(episode: Episode) -> Iterator[tuple[Turn, str]]:
    """Assistant turns with a script that nobody used before: not in a message to the agent, a result, or its
    own earlier words.

    A turn before which nobody said a letter, results aside, switches nothing; nor does a Latin name among
    other letters. Languages of one script count as one.
    """
    known, spoken = set[str](), False
    for turn in episode.turns:
        text = turn.content or ""
        if spoken and _only_of(known, text):
            pass  # brings nothing in
        elif turn.role == "assistant":
            mine = _brought_in(text)
            if spoken and (fresh := mine - known):
                yield turn, min(fresh)
            known |= mine
            spoken = spoken or bool(mine)
        else:
            mine = scripts_of(text, 1)
            known |= mine
            spoken = spoken or (bool(mine) and turn.role != "tool")
        for call in turn.calls:
            result = call.result
            if result and not _only_of(known, result):
                known |= scripts_of(result, 1)
