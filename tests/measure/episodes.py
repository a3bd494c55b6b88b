"""Episodes with known answers, and the readings a run makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import trimtab
from trimtab.measure.accumulate import observe
from trimtab.measure.all_measures import readings_of
from trimtab.measure.sequences.episode_totals import Episodes
from trimtab.measure.sequences.reencoding import difference
from trimtab.measure.sequences.tool_health import ToolHealth
from trimtab.measure.state.requirements import Requirements
from trimtab.runs import RunReader
from trimtab.runs.records import readings_from_row
from trimtab.types import Reading, TokenBatch, Window

W = Window(0, 0)


def episode_batch(
    rng: np.random.Generator, sequences: int = 32, width: int = 30, **changes: Any
) -> TokenBatch:
    """Sequences of `width` own tokens in groups of four, with rewards of 0, 0.5 and 1 in two parts."""
    reward = rng.choice([0.0, 0.5, 1.0], sequences)
    columns: dict[str, Any] = {
        "logprobs": -rng.exponential(1.0, (sequences, width)),
        "token_ids": rng.integers(0, 5, (sequences, width)),
        "reward": reward,
        "group": np.arange(sequences) // 4,
        "reward_parts": {"format": reward / 2, "answer": reward / 2},
        "stop_reason": ["eos"] * sequences,
    }
    mask = changes.pop("loss_mask", np.ones((sequences, width), bool))
    return trimtab.token_batch(mask, **{**columns, **changes})


def readings(steps: Iterable[Sequence[TokenBatch]], **declared: Any) -> dict[tuple[str, str], Reading]:
    """(slice, key) -> reading over all steps, each a list of batches, through the states of `all`."""
    gathered, states = Episodes(Requirements(**declared)), {}
    for step, batches in enumerate(steps):
        for batch in batches:
            gathered.add(batch, np.ones(batch.num_sequences, bool))
            for name, state in observe(batch).items():
                states[name] = states[name].merge(state) if name in states else state
        gathered.close(step)
    gathered.fill(states)
    return {(r.slice, r.key): r for r in readings_of("all", W, states["all"])}


def on_disk(folder: Path) -> dict[tuple[str, str], list[Reading]]:
    """(slice, key) -> the readings a run folder holds, in the order of steps."""
    found: dict[tuple[str, str], list[Reading]] = {}
    for row in RunReader(folder).rows("readings"):
        for reading in readings_from_row(row):
            found.setdefault((reading.slice, reading.key), []).append(reading)
    return found


def episode_keys(rng: np.random.Generator) -> set[str]:
    """Keys that measures of episodes and tools emit."""
    gathered = Episodes()
    batch = episode_batch(rng)
    gathered.add(batch, np.ones(32, bool))
    gathered.retokenised(difference([1, 2], [1, 3]))
    gathered.close(0)
    states = observe(batch)
    gathered.fill(states)
    found = {r.key for r in readings_of("all", W, states["all"])}
    health = ToolHealth(Requirements(required_tools=["search"]))
    for step in range(10):
        found |= {r.key for r in health.close(step, [trimtab.ToolCall("stock", error="Timeout")], 4)}
    return found
