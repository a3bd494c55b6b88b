"""Empty answers, refusals, changes of script, and where failed episodes first went wrong: readings of a table of episodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.measure.traces.builder import Maker, Measured
from trimtab.traces.table.first_error import WRONGS
from trimtab.traces.table.types import Evidence


def word_readings(maker: Maker) -> Iterator[Measured]:
    """Shares of episodes; what a text is taken for is a rule of thumb (`traces.text_marks`)."""
    table = maker.table
    spoken = (table.counts["turns"] > 0) * 1.0
    for key, name in (
        ("traces/empty_answer_frac", "empty_answers"),
        ("traces/refusal_frac", "refusals"),
        ("traces/switch_frac", "switches"),
    ):
        column = table.counts[name] if name in table.counts else table.marks[name]
        evidence = table.evidence.get(name)
        yield maker.share(
            key, (column > 0) * spoken, spoken, maker.clusters, "no assistant turn", evidence, "episodes"
        )


def first_wrongs(maker: Maker, solved: npt.NDArray[Any]) -> Iterator[Measured]:
    """The share of failed episodes in which something had gone wrong, and in which turn it first did."""
    table = maker.table
    failed = solved == 0
    hit = failed & (table.wrong >= 0)
    found = [
        Evidence(
            table.ids[i],
            int(table.wrong_step[i]),
            f"{WRONGS[table.wrong[i]]} in assistant turn {table.wrong_turn[i]} of {table.counts['turns'][i]}",
            table.sources[i],
        )
        for i in np.flatnonzero(hit)[:5]
    ]
    kinds = np.bincount(table.wrong[hit], minlength=len(WRONGS))
    how = ", ".join(f"{count:,} x {kind}" for kind, count in zip(WRONGS, kinds, strict=True) if count)
    where = f"; the median in assistant turn {np.median(table.wrong_turn[hit]):g}" if hit.any() else ""
    yield maker.share(
        "traces/wrong_first_frac", hit * 1.0, failed * 1.0, maker.clusters, "no episode is known to have failed", found,
        f"failed episodes{': first ' if how else ''}{how}{where}",
    )  # fmt: skip
