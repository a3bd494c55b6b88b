"""How a tool words its answer: the value alone, or the value somewhere inside free text.

The second is the condition under which the tail after tool calls is said to grow; the two differ in nothing
else.
"""

from __future__ import annotations

import string
from dataclasses import dataclass

import numpy as np

from trimtab.lab.ramp import Ramp

MARK_OPEN, MARK_CLOSE = "=", ";"
COMMON = string.ascii_lowercase + string.digits + " .,:"
"""Noise characters that SFT has seen in tool outputs."""
RARE = string.ascii_uppercase + "!\"#$%&'()*+-/<>@[\\]^_`{|}~"
"""Printable characters that occur nowhere in SFT."""
ZERO = Ramp.constant(0)


@dataclass(frozen=True)
class OutputStyle:
    """`open=False`: the value and nothing else. `open=True`: `noise=value;noise`.

    Each side holds 0 to `length.at(step)` characters; each of them is rare with probability `rare.at(step)`.

    >>> OutputStyle().render("482", step=0, rng=np.random.default_rng(0))
    '482'
    >>> mild = OutputStyle(open=True, length=Ramp.constant(7))
    >>> mild.render("482", step=0, rng=np.random.default_rng(1))
    'ujm=482;s5emes'
    """

    open: bool = False
    length: Ramp = ZERO
    rare: Ramp = ZERO

    def render(self, value: str, step: int, rng: np.random.Generator) -> str:
        """The text the model will read; deterministic given the generator's state."""
        if not self.open:
            return value
        before, after = (self._noise(step, rng) for _ in range(2))
        return f"{before}{MARK_OPEN}{value}{MARK_CLOSE}{after}"

    def _noise(self, step: int, rng: np.random.Generator) -> str:
        size = int(rng.integers(0, round(self.length.at(step)) + 1))
        rare = rng.random(size) < self.rare.at(step)
        common, strange = (rng.integers(0, len(chars), size) for chars in (COMMON, RARE))
        return "".join(RARE[s] if r else COMMON[c] for r, c, s in zip(rare, common, strange, strict=True))
