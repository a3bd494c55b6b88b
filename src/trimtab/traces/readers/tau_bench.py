"""tau-bench's results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from trimtab.traces.core.coerce import as_label, as_text
from trimtab.traces.core.episode import Episode
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.core.task_keys import task_key, tau_space
from trimtab.traces.files.json_records import iter_objects
from trimtab.traces.readers.chat import episode_of
from trimtab.typing import Json


def is_tau(value: Json) -> bool:
    """tau-bench: a trajectory of messages with a reward."""
    return isinstance(value.get("traj"), list) and "reward" in value


def read_tau(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """tau-bench's results: the id is task and trial, the task also its customer. A run that was never scored (no `reward_info`) hit the step limit."""
    for record, value in iter_objects(records, report, is_tau, "no traj and reward"):
        episode = episode_of(record, {k: v for k, v in value.items() if k != "id"}, value["traj"], report)
        trial = as_label(value.get("trial"))
        episode.id = episode.source if episode.task is None else f"{episode.task}/{trial or '0'}"
        info: Json = given if isinstance(given := value.get("info"), dict) else {}
        episode.task = task_key(tau_space(info, value["traj"]), episode.task)
        episode.stop_reason = _tau_stop(value["traj"], info)
        episode.extra = {"trial": value.get("trial")}
        yield episode


def _tau_stop(messages: list[Any], info: Json) -> str | None:
    last = messages[-1] if messages and isinstance(messages[-1], dict) else {}
    if "###STOP###" in (as_text(last.get("content")) or ""):
        return "user_stop"
    if last.get("name") == "transfer_to_human_agents":
        return "transfer_to_human_agents"
    return "max_steps" if "reward_info" in info and not info["reward_info"] else None
