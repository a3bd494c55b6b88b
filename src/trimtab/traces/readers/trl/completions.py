"""TRL's completions: what GRPO's `log_completions` writes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator

from trimtab.traces.core.coerce import as_int, as_number, as_text
from trimtab.traces.core.episode import Episode
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.files.json_records import iter_objects
from trimtab.traces.readers.prompt_completion import dialogue, digest
from trimtab.traces.readers.trl.reward_columns import MAX_ROWS, numbers_of, reward_columns
from trimtab.typing import Json

_NO_REWARD = "reward functions that gave none to their episode (NaN), left out of the sum"


def is_trl(value: Json) -> bool:
    """TRL's log_completions: text, and an advantage."""
    return "prompt" in value and "completion" in value and "advantage" in value


def read_trl(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """`completions_*.parquet` of TRL: the reward is the sum of the reward functions' columns; which these
    are, and with what weights where the plain sum is not it, the advantages say (`traces.trl_rewards`).

    TRL writes NaN for a function that returned None, and leaves it out of the sum; the sum is NaN where all
    are. Attempts at one prompt in one step are a group.
    """
    rest, columns = iter(records), report.state.get("trl")
    first: list[Record] = []
    if columns is None:  # not read from files
        first = list(itertools.islice(rest, MAX_ROWS))
        columns = reward_columns([r.value for r in first if isinstance(r.value, dict) and is_trl(r.value)])
    columns.tell(report)
    missing = "no prompt, completion and advantage"
    for record, value in iter_objects(itertools.chain(first, rest), report, is_trl, missing):
        prompt, step = value.get("prompt"), as_int(value.get("step"))
        numbers = numbers_of(value)
        parts = {name: number for name, number in numbers.items() if name not in columns.others}
        others = {name: number for name, number in numbers.items() if name in columns.others}
        finite = {k: v for k, v in parts.items() if not math.isnan(v)}
        if finite and len(finite) < len(parts):
            report.note(_NO_REWARD, len(parts) - len(finite))
            parts = finite
        task = digest(as_text(prompt))
        turns, tools = dialogue(value, prompt, value.get("completion"), report, record)
        yield Episode(
            id=record.source, turns=turns, tools=tools, task=task, group=f"{step}/{task}",
            reward=columns.reward(parts) if parts else None, reward_parts=parts, step=step,
            source=record.source, extra={"advantage": as_number(value.get("advantage")), **others},
        )  # fmt: skip
