"""Texts to small integers, in the order of their coming."""

from __future__ import annotations

from trimtab.traces.table.types import OTHER


class Codes(dict[str, int]):
    """Places of texts; beyond `limit` they share one.

    >>> codes = Codes(1)
    >>> codes.of("a"), codes.of("b"), codes.of("c"), codes.of(None), list(codes)
    (0, 1, 1, -1, ['a', '(other)'])
    """

    def __init__(self, limit: int = 2**62) -> None:
        super().__init__()
        self.limit = limit

    def of(self, text: str | None) -> int:
        """The text's place; -1 for None."""
        if text is None:
            return -1
        if text not in self and len(self) >= self.limit:
            text = OTHER
        return self.setdefault(text, len(self))
