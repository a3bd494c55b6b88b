"""Words of our own are banned where the field has one (docs/glossary.md)."""

from __future__ import annotations

import re

from tests.house.tree import identifiers, prose

PHRASES = (
    r"drawn in\b", r"wild values?", r"house default", r"\bmend(s|ed|ing)?\b", r"standstill", r"\btold\b",
    r"excuse[sd]?\b", r"words a person needs", r"\bis no (?!longer|less|more|need|such|reference|way|doubt|reason)\w+",
)  # fmt: skip
"""Phrases banned in docstrings, comments, messages and docs."""
NAMES = (
    "place", "places", "least", "most", "look", "looks", "edge", "edges", "deviate", "deviates", "found", "said", "held", "shelf",
    "desk", "loose", "beside", "rivals", "knobs", "tally", "inert", "seal", "told", "kept", "given", "made", "asked", "heard", "gone",
    "spent",
)  # fmt: skip
"""Banned as whole identifiers. Reading keys and stored fields on disk are listed in `STORED`."""
STORED = frozenset({"heard"})
"""Fields of rows on disk whose names are fixed by run format 1: `Alarm.heard`."""


def test_no_phrases_of_our_own() -> None:
    pattern = re.compile("|".join(PHRASES), re.IGNORECASE)
    hits = [f"{where}: {m.group(0)}" for where, text in prose() for m in pattern.finditer(text)]
    assert not hits, f"{len(hits)} phrases of our own:\n" + "\n".join(hits)


def test_no_names_of_our_own() -> None:
    banned = set(NAMES) - STORED
    hits = [f"{where}: {name}" for where, name in identifiers() if name.strip("_") in banned]
    assert not hits, f"{len(hits)} names of our own:\n" + "\n".join(hits)
