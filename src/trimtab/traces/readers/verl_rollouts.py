"""Reader of the rollouts that verl dumps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trimtab.traces.core.coerce import as_flag, as_int, as_label, as_number
from trimtab.traces.core.episode import Episode
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.files.json_records import iter_objects
from trimtab.traces.readers.prompt_completion import digest, template_turns
from trimtab.typing import Json

_NOT_PARTS = ("score", "step")


def is_verl(value: Json) -> bool:
    """Is it a line of verl's `trainer.rollout_data_dir`?"""
    return isinstance(value.get("input"), str) and isinstance(value.get("output"), str) and "score" in value


def read_verl(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """Yield an episode for each line of verl's `<step>.jsonl`, which holds text without special tokens.

    Equal inputs of one step are a group. Numbers other than the score are parts of the reward.
    """
    for record, value in iter_objects(records, report, is_verl, "no input, output and score"):
        numbers = {k: v for k, v in value.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
        step, task = as_int(value.get("step")), digest(value["input"])
        turns, tools = template_turns(value["input"], value["output"], report)
        yield Episode(
            id=as_label(value.get("request_id")) or record.source,
            turns=turns,
            tools=tools,
            task=task,
            group=f"{step}/{task}",
            step=step,
            reward=as_number(value["score"]),
            reward_parts={k: float(v) for k, v in numbers.items() if k not in _NOT_PARTS},
            success=as_flag(value.get("acc")),
            source=record.source,
            extra={"gts": value.get("gts")},
        )
