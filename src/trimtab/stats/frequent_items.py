"""Frequent items of a stream of texts, in bounded memory: counts that are exact, or known to within a bound.

Keeping the first names that come hides the most frequent ones behind rare early ones. This sketch drops the
rare ones instead, and says by how much a count may be too low.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from trimtab.errors import SummaryError


class Frequency(NamedTuple):
    """The true count of `item` lies from `low` to `high`."""

    item: str
    low: int
    high: int


class FrequentItems:
    """Counters of at most `capacity` items (Misra and Gries 1982), merged as by Agarwal et al. (2012).

    Up to `capacity` different items all counts are exact. When there is one more, the (capacity // 2 + 1)-th
    largest count is taken from every counter, and what reaches zero is dropped. A count is then too low by
    at most `max_undercount`, which is at most `total / (capacity // 2 + 1)`: an item more frequent than that
    is never dropped. Merged sketches keep the bound, whatever the order.

    Args:
        capacity: Items with a counter, at least 1.

    Example:
        >>> kinds = FrequentItems(capacity=3)
        >>> kinds.update(["a", "b", "c", "a", "d", "a"])
        >>> kinds.most_common(1), kinds.total, kinds.max_undercount
        ([Frequency(item='a', low=2, high=3)], 6, 1)

    Reference:
        Misra and Gries, Finding repeated elements, 1982; Agarwal et al., Mergeable summaries, PODS 2012,
        section 2.
    """

    def __init__(self, capacity: int = 1024) -> None:
        if capacity < 1:
            raise SummaryError(f"a sketch of frequent items needs room for 1 item or more, got {capacity}")
        self.capacity = capacity
        self.total = 0  # of all items that came
        self.max_undercount = 0
        self._counts: dict[str, int] = {}

    def add(self, item: str, count: int = 1) -> None:
        """Count an item `count` times, at least once."""
        self._counts[item] = self._counts.get(item, 0) + count
        self.total += count
        self._shrink()

    def update(self, items: Iterable[str]) -> None:
        """Count each item of a stream once."""
        for item in items:
            self.add(item)

    def merge(self, other: FrequentItems) -> FrequentItems:
        """Return the sketch of both streams; both arguments stay as they are. SummaryError for another
        capacity."""
        if other.capacity != self.capacity:
            raise SummaryError(f"sketches of {self.capacity} and {other.capacity} items do not merge")
        both = self.copy()
        for item, count in other._counts.items():
            both._counts[item] = both._counts.get(item, 0) + count
        both.total += other.total
        both.max_undercount += other.max_undercount
        both._shrink()
        return both

    def copy(self) -> FrequentItems:
        """Return a sketch of the same stream that has nothing in common with this one."""
        same = FrequentItems(self.capacity)
        same.total, same.max_undercount, same._counts = self.total, self.max_undercount, dict(self._counts)
        return same

    def bounds(self, item: str) -> tuple[int, int]:
        """Return the lowest and the highest number of times that the item can have come."""
        low = self._counts.get(item, 0)
        return low, min(low + self.max_undercount, self.total)

    def most_common(self, n: int | None = None) -> list[Frequency]:
        """Return the n items with the largest counts, the largest first, of equal ones by name; all known
        ones for None."""
        ranked = sorted(self._counts.items(), key=lambda pair: (-pair[1], pair[0]))
        return [Frequency(item, *self.bounds(item)) for item, _ in ranked[:n]]

    def shown(self, n: int, other: str) -> dict[str, int]:
        """Return the n most frequent items with their lowest counts, and the rest of the total as `other`.

        >>> kinds = FrequentItems()
        >>> kinds.update("abacab")
        >>> kinds.shown(2, "(other)")
        {'a': 3, 'b': 2, '(other)': 1}
        """
        counts = {one.item: one.low for one in self.most_common(n)}
        if left := self.total - sum(counts.values()):
            counts[other] = counts.get(other, 0) + left
        return counts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrequentItems) and self.__dict__ == other.__dict__

    def __repr__(self) -> str:
        counts = {one.item: one.low for one in self.most_common()}
        return f"FrequentItems({counts}, total={self.total}, max_undercount={self.max_undercount})"

    __hash__ = None  # type: ignore[assignment]  # mutable

    def _shrink(self) -> None:
        if len(self._counts) <= self.capacity:
            return
        cut = sorted(self._counts.values(), reverse=True)[self.capacity // 2]
        self._counts = {item: count - cut for item, count in self._counts.items() if count > cut}
        self.max_undercount += cut
