"""States beyond the log-ratios' own, each filled by the file that reads it. To add one: a function, a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from trimtab.measure.policy.exemplars import fill_exemplars
from trimtab.measure.policy.expert_agreement import fill_routing
from trimtab.measure.policy.prompt_retrieval import fill_ngrams
from trimtab.measure.policy.tool_boundary_entropy import fill_borders
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.turn_rows import Own
from trimtab.measure.tokens.rare_tokens import fill_rare
from trimtab.types import TokenBatch
from trimtab.typing import Float32

FILLS: tuple[Callable[[Own, Mapping[str, SliceState]], None], ...] = (
    fill_borders,
    fill_exemplars,
    fill_ngrams,
    fill_rare,
    fill_routing,
)
"""Each sets parts of the states it is given and may be called once a batch."""

NOTED = {"entropy": "entropy/sketch", "routing": "routing/layers", "distinguish": "distinguish_hits/values"}
"""What has a note `not <name>` when it was not observed -> the part it has when it was."""


def fill(
    batch: TokenBatch,
    sequence: npt.NDArray[np.int64],
    ratios: Mapping[str, Float32],
    states: dict[str, SliceState],
) -> dict[str, SliceState]:
    """Run all of `FILLS` on the states of a batch, which are returned; `sequence`, `ratios` as in `Own`."""
    own = Own(batch, sequence, ratios)
    for each in FILLS:
        each(own, states)
    return states
