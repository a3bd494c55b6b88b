"""What Harbor's `result.json` says of the trial whose trajectory is read: task, rewards, what stopped it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from trimtab.traces.core.coerce import as_label, as_object, as_time, numbers_in, objects_in
from trimtab.traces.core.json_text import json_of_file
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.files.find import STDIN
from trimtab.typing import Json

_MAIN = re.compile(r"trajectory(?:\.cont-\d+)?\.json(?:\.gz|\.zst)?")
_STOPS = {"AgentTimeoutError": "agent_timeout"}
_SEVERAL = "trials with several rewards and none called reward (Harbor): parts only"


@dataclass(frozen=True)
class Trial:
    """A trial; nothing of it where no file tells."""

    name: str | None = None
    task: str | None = None
    reward: float | None = None
    parts: dict[str, float] = field(default_factory=dict)
    stop: str | None = None
    seconds: float | None = None  # the agent's


def trial_of(file: str, trajectory: Json, report: ReadReport) -> Trial:
    """Return the trial of a trajectory's file, `TRIAL/agent/trajectory.json` or
    `TRIAL/steps/STEP/agent/trajectory.json`.

    Only the last segment of a trajectory in several files is scored; trajectories of sub-agents are not.

    Args:
        file: the trajectory's.
        trajectory: its content.
        report: where the file that tells is marked as used.
    """
    path = Path(file)
    if file == STDIN or not _MAIN.fullmatch(path.name) or trajectory.get("continued_trajectory_ref"):
        return Trial()
    folder = path.absolute().parent.parent
    for here, step in ((folder, None), (folder.parent.parent, folder.name)):
        value = json_of_file(here / "result.json")
        if isinstance(value, dict) and "trial_name" in value and "task_name" in value:
            report.used.add(str((here / "result.json").resolve()))
            return _trial(value, step, report)
    return Trial()


def _trial(value: Json, step: str | None, report: ReadReport) -> Trial:
    steps = objects_in(value.get("step_results"))
    phase = next((one for one in steps if one.get("step_name") == step), value) if step else value
    parts = numbers_in(as_object(phase.get("verifier_result")).get("rewards"))
    reward = parts.get("reward", next(iter(parts.values())) if len(parts) == 1 else None)
    if parts and reward is None:
        report.note(_SEVERAL)
    failure = as_label(as_object(phase.get("exception_info")).get("exception_type"))
    timing = as_object(phase.get("agent_execution"))
    start, end = as_time(timing.get("started_at")), as_time(timing.get("finished_at"))
    task = as_label(value.get("task_name"))
    return Trial(
        name=as_label(value.get("trial_name")),
        task=f"{task}/{step}" if step else task,
        reward=reward,
        parts=parts,
        stop=_STOPS.get(failure, failure) if failure else None,
        seconds=None if start is None or end is None else end - start,
    )
