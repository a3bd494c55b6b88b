"""Frequent items against exact counts: bounds, what is never dropped, and merges in any order."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from functools import reduce

import numpy as np
import pytest

from trimtab.errors import SummaryError
from trimtab.stats import FrequentItems


def _zipf(seed: int, n: int = 5_000) -> list[str]:
    """A few frequent items, hundreds of rare ones; the rare ones come first, as in the log that hid its top kind."""
    rng = np.random.default_rng(seed)
    items = [f"k{i}" for i in np.minimum(rng.zipf(1.4, n), 2_000)]
    return sorted(items, key=lambda item: items.count(item) > 40) if seed % 2 else items


def _sketch(items: list[str], capacity: int = 64) -> FrequentItems:
    sketch = FrequentItems(capacity)
    sketch.update(items)
    return sketch


def _check(sketch: FrequentItems, exact: Counter[str]) -> None:
    assert sketch.total == exact.total()
    assert sketch.max_undercount <= sketch.total / (sketch.capacity // 2 + 1)
    assert len(sketch.most_common()) <= sketch.capacity
    for item, count in exact.items():
        low, high = sketch.bounds(item)
        assert low <= count <= high, item
        assert low > 0 or count <= sketch.max_undercount
    assert sketch.bounds("never came")[0] == 0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("capacity", [1, 2, 16, 64])
def test_bounds_hold_against_exact_counts(seed, capacity):
    items = _zipf(seed)
    _check(_sketch(items, capacity), Counter(items))


def test_the_most_frequent_item_is_first_however_many_rare_ones_came_before():
    items = [f"rare {i}" for i in range(4_000)] + ["code fence sent to the shell"] * 600 + ["other"] * 71
    top = FrequentItems()
    top.update(items)
    assert [one.item for one in top.most_common(2)] == ["code fence sent to the shell", "other"]
    assert top.most_common(1)[0].low <= 600 <= top.most_common(1)[0].high
    assert top.max_undercount <= 9
    assert sum(top.shown(3, "(other)").values()) == len(items)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_merges_keep_the_bounds_in_any_order_and_shape(order):
    parts = [_zipf(seed, 2_000) for seed in range(4)]
    exact = Counter(item for part in parts for item in part)
    a, b, c, d = (_sketch(parts[i]) for i in order)
    before = [copy.deepcopy(one) for one in (a, b, c, d)]
    _check(reduce(FrequentItems.merge, (a, b, c, d)), exact)
    _check(a.merge(b).merge(c.merge(d)), exact)
    assert [a, b, c, d] == before
    assert a.merge(b) == b.merge(a)


def test_laws_where_nothing_was_dropped():
    parts = [_zipf(seed, 300) for seed in range(3)]
    a, b, c = (_sketch(part, 2_048) for part in parts)
    whole = _sketch([item for part in parts for item in part], 2_048)
    assert a.merge(b).merge(c) == a.merge(b.merge(c)) == whole
    assert (
        a.merge(FrequentItems(2_048)) == a == FrequentItems(2_048).merge(a) == pickle.loads(pickle.dumps(a))
    )
    assert whole.max_undercount == 0
    assert {one.item: one.low for one in whole.most_common()} == Counter(
        item for part in parts for item in part
    )
    assert whole.bounds("never came") == (0, 0)


def test_refusals():
    with pytest.raises(SummaryError, match="room for 1 item or more, got 0"):
        FrequentItems(0)
    with pytest.raises(SummaryError, match="sketches of 3 and 4 items do not merge"):
        FrequentItems(3).merge(FrequentItems(4))
