"""What to try first after a run ended badly, each with the evidence for it; the likeliest comes first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.guard.cause_table import POLICIES_OF_CAUSE, policies_for
from trimtab.report.post_mortem.bad_ending import (
    EXCEPTION,
    KILLED,
    NOT_FINITE,
    OUT_OF_MEMORY,
    SIGNAL,
    STOPPED,
    BadEnding,
)
from trimtab.report.post_mortem.last_stable import LastStable
from trimtab.report.post_mortem.resource_growth import (
    grown_phases,
    is_nearly_full,
    length_growth,
    memory_lines,
)

Json = dict[str, Any]
_MAX_STEPS = 6
_HOST = re.compile(r"^MemoryError|^[\w.]*ArrayMemoryError|DefaultCPUAllocator|annot allocate memory")
"""Errors of the host's memory; others are of a device."""
_OF_PHASE = {
    "rollout": "generate fewer or shorter answers at a time (max_completion_length, generation_batch_size, "
    "the engine's share of GPU memory)",
    "forward": "score fewer sequences at a time (per_device_train_batch_size, more accumulation), or "
    "checkpoint activations",
    "backward": "train on fewer sequences at a time (per_device_train_batch_size, more accumulation), or "
    "checkpoint activations",
    "optimizer": "shard or offload the optimizer (ZeRO, FSDP), or use one of 8 bits",
    "reward": "call the reward in smaller batches, or move its model to another device",
    "tools": "bound what tools return and how many run at once",
}
"""Phase of a step -> what lowers its memory."""


@dataclass(frozen=True)
class Case:
    """What is known of a run that ended badly."""

    folder: str
    ending: BadEnding
    stable: LastStable
    incidents: Sequence[Mapping[str, Any]]  # those that were open at the end
    actions: Sequence[Mapping[str, Any]]
    rows: Sequence[Mapping[str, Any]]  # of steps, of the rank that ended worst
    averages: Mapping[str, Any]
    checkpoints: Sequence[Mapping[str, Any]]  # rows, in order
    guarded: bool


def first_steps(case: Case) -> list[Json]:
    """Return what to try, most telling first: `do`, `because` and, where there is one, a `command`."""
    steps = _OF_KIND[case.ending.kind](case)
    for incident in reversed(case.incidents):
        steps += _of_incident(incident, case)
    return [*steps[: _MAX_STEPS - 1], _resume(case)]


def _step(do: str, because: str, command: Sequence[str] = ()) -> Json:
    return {"do": do, "because": because, "command": list(command)}


def _memory(case: Case) -> list[Json]:
    phase = str(case.ending.detail.get("phase", ""))
    evidence = [f"it left from phase {phase}"] if phase else []
    grown = grown_phases(case.rows)
    length = length_growth(case.averages)
    kind = "host" if _HOST.search(case.ending.error) else "device"
    uses = [line for line in memory_lines(case.rows) if line.startswith(kind)]
    evidence += [
        *grown[:1],
        *([length] if length else []),
        *(uses or [f"no reading of {kind} memory was recorded"]),
    ]
    because = "; ".join(evidence or [case.ending.error or "the error says so"])
    grew = phase or (grown[0].split(" took ")[0] if grown else "")
    do = _OF_PHASE.get(grew, "lower what the step holds at once: sequences, their length, or both")
    steps = [_step(do, because)]
    if length:
        steps.append(_step("bound the length of answers, and mask truncated ones", length))
    return steps


def _not_finite(case: Case) -> list[Json]:
    columns = ", ".join(case.ending.nonfinite[:4]) or case.ending.error
    steps = [
        _step(
            "read the worst tokens, and the batch of the first step that is not finite, before any change",
            f"not finite: {columns}",
        )
    ]
    if not case.guarded:
        do = "resume with watch(..., guard='recommended'): an update whose gradient is not finite is left out"
        steps.append(_step(do, "the run had no guard"))
    return steps


def _stopped(case: Case) -> list[Json]:
    stop = next(row for row in reversed(case.actions) if row["action"] == "stop")
    why = stop["note"] or "nothing was left to try"
    evidence = "; ".join(stop["evidence"] or stop["rules"])
    because = f"the guard stopped at step {stop['step']}: {why}" + (f" ({evidence})" if evidence else "")
    return [_step(f"find the cause before resuming: {stop['cause']}", because)]


def _exception(case: Case) -> list[Json]:
    line, phase = case.ending.detail.get("line", ""), case.ending.detail.get("phase", "")
    where = f" at {line}" if line else ""
    because = (case.ending.error or "an exception was recorded") + (f", in phase {phase}" if phase else "")
    return [_step(f"read the error{where}; it came from there, not from the learning", because)]


def _signal(case: Case) -> list[Json]:
    name = case.ending.detail.get("signal", "SIGTERM")
    if name == "SIGINT":
        return [_step("nothing needs repair: it was interrupted by a person", case.ending.text)]
    do = "ask the scheduler why (time limit, preemption, another rank that failed), then resume"
    return [_step(do, case.ending.text)]


def _killed(case: Case) -> list[Json]:
    lines = memory_lines(case.rows)
    full = [kind for kind in ("host", "device") if is_nearly_full(case.rows, kind)]
    if "host" in full:
        do = "take it for the kernel's out-of-memory killer until dmesg says otherwise"
    else:
        do = "ask the kernel and the scheduler who killed it"
    because = "; ".join([case.ending.text, *lines])
    return [_step(do, because, ["dmesg", "-T", "--level=err,warn"])]


_OF_KIND = {
    OUT_OF_MEMORY: _memory, NOT_FINITE: _not_finite, STOPPED: _stopped, EXCEPTION: _exception,
    SIGNAL: _signal, KILLED: _killed,
}  # fmt: skip


def _of_incident(incident: Mapping[str, Any], case: Case) -> list[Json]:
    likely = [cause for cause in incident["causes"] if cause["score"] > 0]
    since, where = incident["since"], incident["slice"]
    rules = ", ".join(dict.fromkeys(alarm["rule"] for alarm in incident["alarms"]))
    if not likely:
        do = f"open the report at step {since}, slice {where}: no cause is more likely than another"
        return [_step(do, rules, ["trimtab", "report", case.folder, "-o", "report.html"])]
    cause = likely[0]
    because = f"{cause['name']} since step {since} in {where}: {'; '.join(cause['evidence_for'])}"
    steps = [_step(cause["test"], because)] if cause["test"] else []
    policies = policies_for(cause["name"], POLICIES_OF_CAUSE)
    if policies and not case.guarded:
        do = f"resume with watch(..., guard='recommended'), which answers with {', '.join(policies)}"
        steps.append(_step(do, f"likely cause: {cause['name']}; the run had no guard"))
    return steps


def _resume(case: Case) -> Json:
    """The last advice: from where to go on."""
    stable = case.stable
    whole = [row for row in case.checkpoints if stable.step is not None and row["step"] <= stable.step]
    if whole:
        row = max(whole, key=lambda one: int(one["step"]))
        because = f"the newest recorded checkpoint up to the last stable step, {stable.step}"
        command = ["trimtab", "resume-check", case.folder, str(row["path"])]
        return _step(f"resume from step {row['step']}, once it is checked", because, command)
    if stable.state:
        command = ["trimtab", "resume-check", case.folder, stable.state]
        return _step(f"go back to the guard's state of step {stable.step}", stable.why, command)
    if stable.step is None:
        return _step("begin anew: no step of the record was stable", stable.why)
    do = f"resume from a checkpoint of step {stable.step} or earlier, checked with trimtab resume-check"
    return _step(do, stable.why)
