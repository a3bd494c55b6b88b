"""NeMo RL's `train_data_step<N>.jsonl`: a step's tokens with the log-probabilities of both engines.

Read at NVIDIA-NeMo/RL@7ea279a: `nemo_rl/algorithms/grpo.py` (what is logged), `nemo_rl/utils/logger.py`
(`log_batched_dict_as_jsonl`: a sample a line, each field a list of one), `nemo_rl/data/llm_message_utils.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from trimtab.traces.core.coerce import as_int, as_list, as_number
from trimtab.traces.core.episode import Episode
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.files.json_records import iter_objects
from trimtab.traces.readers.prime_rl import token_episode
from trimtab.typing import Json

_STEP = re.compile(r"step(\d+)\.jsonl")
_FIELDS = {
    "token_ids": "token_ids", "token_loss_mask": "loss_mask", "advantages": "advantages",
    "generation_logprobs": "inference_logprobs", "prev_logprobs": "trainer_logprobs",
}  # fmt: skip
"""Theirs -> prime-rl's word for the same list, one entry a token."""


def is_nemo(value: Json) -> bool:
    """A line of NeMo RL's training data."""
    return "token_loss_mask" in value and "generation_logprobs" in value


def read_nemo(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """An episode a line; padding is cut at `input_lengths`, and a masked sample has no trained token."""
    for record, value in iter_objects(records, report):
        size = as_int(_only(value.get("input_lengths")))
        row = {ours: _cut(_only(value.get(theirs)), size) for theirs, ours in _FIELDS.items()}
        if as_number(_only(value.get("sample_loss_mask"))) == 0:
            row["loss_mask"] = [0] * len(as_list(row["token_ids"]))
        step = _STEP.search(record.file)
        episode = token_episode(record, {**row, "step": int(step[1]) if step else None}, report)
        if episode is None:
            continue
        episode.reward = as_number(_only(value.get("rewards")))
        yield episode


def _cut(values: object, size: int | None) -> object:
    return values[:size] if isinstance(values, list) else values


def _only(value: object) -> object:
    """The entry of a list of one."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value
