"""The demo's last line: it goes no further than the intervals of the last windows."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("rich")

from trimtab.training.demo import _comparison
from trimtab.types import Reading, Window


class View:
    def __init__(self, **values):
        self.values = values

    def series(self, key, name):
        assert key == "drift/p95"
        found = self.values.get(name)
        if found is None:
            return []
        value, low, high = found
        return [Reading(key, 110, Window(100, 110), name, value, 600, 30, low, high)]


CALM = {"post_tool": (0.4, 0.3, 0.5), "text": (0.3, 0.2, 0.4)}


@pytest.mark.parametrize(
    ("post", "words"),
    [
        ((6.0, 4.0, 8.0), "is above the constrained arm's and its own text tail"),
        ((6.0, 0.45, 8.0), "is not distinguishable from noise"),  # overlaps the constrained arm's interval
        ((0.0, 0.0, 0.0), "is not distinguishable from noise"),
        ((math.nan, math.nan, math.nan), "nothing is claimed"),
        ((6.0, math.nan, math.nan), "nothing is claimed"),
        (None, "nothing is claimed"),
    ],
)
def test_a_larger_tail_is_said_only_beyond_the_intervals(post, words):
    assert words in _comparison(View(**CALM), View(**{**CALM, "post_tool": post}))


def test_a_missing_or_zero_text_tail_is_no_error():
    grown = {**CALM, "post_tool": (6.0, 4.0, 8.0)}
    assert "nothing is claimed" in _comparison(View(**CALM), View(**{**grown, "text": None}))
    zero = {"post_tool": (0.0, 0.0, 0.0), "text": (0.0, 0.0, 0.0)}
    assert "is above the constrained" in _comparison(View(**zero), View(**{**grown, "text": (0.0, 0.0, 0.0)}))
