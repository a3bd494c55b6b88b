"""A reward probed, and compared with another revision of it where there is one: the result in one object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.errors import RewardError
from trimtab.report.rewards.stress_verdict import stress_verdict
from trimtab.rewards.probe_findings import findings_of
from trimtab.rewards.probe_run import ProbeOptions, run_probes
from trimtab.rewards.probe_tasks import built_in_tasks, load_tasks
from trimtab.rewards.revision_changes import changed_findings, rescored


@dataclass(frozen=True)
class RewardRequest:
    """Which reward, on which tasks."""

    target: str  # module:function, or path/file.py:function
    dataset: Path | None = None  # tasks; None: ten sums
    against: str | None = None  # another revision
    completions: Path | None = None  # logged completions, scored with both revisions
    options: ProbeOptions = field(default_factory=ProbeOptions)


def reward_verdict(request: RewardRequest, say: Callable[[str], None] | None = None) -> dict[str, Any]:
    """Probe a reward.

    Args:
        request: the reward, its tasks and its other revision.
        say: is given the name of each stage.

    Returns:
        `stress_verdict`, with `against`, `changes` and `completions` where another revision was given.

    Raises:
        RewardError: a function or a file that cannot be loaded, or completions without a revision.
    """
    target, against = request.target, request.against
    if request.completions is not None and against is None:
        raise RewardError("--completions compares two revisions; give the other one with --against")
    tasks = load_tasks(request.dataset) if request.dataset is not None else built_in_tasks()
    record = run_probes(target, tasks, request.options, say)
    result: dict[str, Any] = stress_verdict(record)
    if against is not None:
        other = run_probes(against, tasks, request.options, say)
        result["against"] = against
        result["changes"] = changed_findings(findings_of(other), findings_of(record))
        if request.completions is not None:
            logged = load_tasks(request.completions, limit=0)
            result["completions"] = rescored(against, target, logged, 10 * request.options.timeout_s)
    return result
