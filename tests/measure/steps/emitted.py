"""The keys that steps of a run with every column, tool calls and two ranks give to rules."""

from __future__ import annotations

import numpy as np

from trimtab.capture import token_batch
from trimtab.detect.step_readings import step_readings
from trimtab.measure.steps.opposed_parts import BEFORE, RECENT
from trimtab.measure.steps.rank_merge import merge_ranks
from trimtab.monitor.series_recorder import SeriesRecorder
from trimtab.traces.core.tool_call import ToolCall


def step_keys(rng: np.random.Generator) -> set[str]:
    rows, length = 8, 10
    recorder, keys = SeriesRecorder(solved_at=None), set()
    for step in range(RECENT + BEFORE):
        mu = -rng.exponential(1.0, (rows, length)) - 5.0
        columns = {
            "rollout_logprobs": mu, "old_logprobs": mu, "logprobs": mu, "ref_logprobs": mu,
            "tools": [["search"]] * rows, "group": np.arange(rows) // 2, "reward": rng.random(rows),
            "advantages": rng.normal(size=(rows, length)),
            "reward_parts": {"up": np.full(rows, 0.1 * step), "down": np.full(rows, -0.1 * step)},
            "policy_version": np.full((rows, length), step), "current_version": step,
        }  # fmt: skip
        mask = np.ones((rows, length), bool)
        mask[:, 4:6] = False
        batch = token_batch(mask, **columns)
        recorder.add(batch)
        recorder.add_update("batch", token_batch(mask, logprobs=mu, prox_logprobs=mu))
        _, readings = recorder.close(step, 1.0, [ToolCall("search", error="no", step=step)])
        keys |= {reading.key for reading in readings}
        recorder.next_step()
    last = recorder.history.latest
    assert last is not None
    return keys | {reading.key for reading in step_readings(merge_ranks([last, last], [0, 1]))}
