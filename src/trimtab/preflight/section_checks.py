"""Each section of a launch check as one row: go, no-go or undecided, the evidence, and what to do."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from trimtab.preflight.preflight_file import EnvironmentSection, ParitySection, RewardSection, ToolsSection

State = Literal["go", "no-go", "undecided", "not run"]
BAD_STATES: tuple[State, ...] = ("no-go", "undecided")
"""The worst first."""
TITLES = {
    "tools": "Tools under load", "reward": "Reward under probes", "environment": "Environment under exploits",
    "parity": "Training against evaluation", "dry_run": "Watched dry run",
}  # fmt: skip


@dataclass(frozen=True)
class CheckResult:
    """What a section showed."""

    state: State
    evidence: str  # one line
    advice: str = ""  # what to do where it is not go
    result: dict[str, Any] | None = field(default=None)  # that of the section's own command

    def row(self) -> dict[str, Any]:
        """The check as a JSON object."""
        return asdict(self)


def unknown(evidence: str, advice: str = "") -> CheckResult:
    """Return the check of a section that could not be made."""
    return CheckResult("undecided", evidence, advice or "Repair what it names and run the check again.")


def tools_check(section: ToolsSection, say: Callable[[str], None] | None = None) -> CheckResult:
    """Stress the target and compare with its objective.

    Args:
        section: target and objective.
        say: takes a line about each phase.
    """
    from trimtab.report.tools.tool_stress_verdict import tool_stress_verdict
    from trimtab.tools.stress.load_ramp import Objective, StressOptions
    from trimtab.tools.stress.target_stress import StressTarget, stress_target

    objective = Objective(_number(section.p99_s), _number(section.error_rate), section.concurrency)
    options = StressOptions(
        section.seconds, max(section.max_concurrency, section.concurrency), _number(section.rate), objective,
        _number(section.calls_per_rollout), section.rollouts, section.cost_per_call, section.seed,
    )  # fmt: skip
    trace = Path(section.trace) if section.trace else None
    names = tuple(section.tools)
    named = StressTarget(section.target, names, trace, section.timeout_s, section.chaos or None)
    mix, measured, faults = stress_target(named, options, say)
    return _judged_tools(tool_stress_verdict(section.target, mix.row(), measured.row(), faults))


def _judged_tools(result: dict[str, Any]) -> CheckResult:
    """The check of a stress test: of a missed objective also which tools failed, and how."""
    from trimtab.report.tools.tool_stress_verdict import (
        chaos_lines,
        delay_lines,
        error_rows,
        failed_tools,
        left_out_lines,
        missed_by_drawn_arguments,
    )

    silent = chaos_lines(result["chaos"], result)[1:]  # faults that looked like answers
    notes = [*left_out_lines(result["mix"]), *silent, *delay_lines(result["open_loop"])]
    evidence = " ".join([result["headline"], *notes])
    if result["exit_code"] == 0:
        return CheckResult("go", evidence, "", result)
    failed = failed_tools(result)
    if failed:
        kinds = ", ".join(f"{kind} {count}" for kind, count in error_rows(result)[:2])
        evidence += f" Failed calls: {', '.join(f'{name} {count}' for name, count in failed[:3])} ({kinds})."
        first = result["failures"][0]
        evidence += f" First: {first['tool']} with {first['arguments']}: {first['error']}."
    if missed_by_drawn_arguments(result):
        advice = "Give real calls with trace: the tools refused arguments that were drawn from their schemas."
        return CheckResult("undecided", evidence, advice, result)
    holds = result["holds_concurrency"] or 0
    advice = f"Give the tools more capacity, or let at most {holds} rollouts call at a time."
    if not holds:
        advice = "Repair the tools named in the evidence: the objective is missed even by one caller."
    return CheckResult("no-go", evidence, advice, result)


def reward_check(section: RewardSection) -> CheckResult:
    """Probe the reward, beside its previous revision where there is one."""
    from trimtab.report.rewards.revision_verdict import RewardRequest, reward_verdict
    from trimtab.rewards.probe_run import ProbeOptions

    request = RewardRequest(
        section.function, Path(section.dataset) if section.dataset else None, section.previous or None,
        Path(section.completions) if section.completions else None,
        ProbeOptions(timeout_s=section.timeout_s, template=section.template),
    )  # fmt: skip
    result = reward_verdict(request)
    evidence = result["headline"]
    if result.get("changes"):
        words = ", ".join(f"{row['kind']} {row['status']}" for row in result["changes"][:3])
        evidence += f" Against {section.previous}: {words}."
    if result["exit_code"]:
        first = next(row for row in result["findings"] if row["severity"] != "info")
        return CheckResult("no-go", evidence, first["advice"], result)
    if result["unfinished"]:
        return CheckResult(
            "undecided", f"{evidence} But probes were left out: {result['unfinished']}.",
            "Make the reward answer in time, or raise timeout_s.", result,
        )  # fmt: skip
    return CheckResult("go", evidence, "", result)


def environment_check(section: EnvironmentSection) -> CheckResult:
    """Run every exploit against the environment."""
    from trimtab.report.rewards.stress_verdict import exploits_by_outcome
    from trimtab.rewards.environment.environment_stress import load_environment, stress_environment

    result = stress_environment(load_environment(Path(section.spec)))
    paid, refused, failed = exploits_by_outcome(result)
    evidence = result["headline"]
    if paid:
        names = ", ".join(row["exploit"] for row in paid[:4])
        more = ", ..." if len(paid) > 4 else ""
        advice = "Judge in a process, with files and a history that the agent's phase cannot reach."
        return CheckResult("no-go", f"{evidence} Paid: {names}{more}.", advice, result)
    if failed and not refused:
        text = f"No exploit could act: {failed[0]['exploit']}, {failed[0]['ending']}"
        return CheckResult("undecided", text, "Repair the environment's description.", result)
    return CheckResult("go", evidence, "", result)


def parity_check(section: ParitySection) -> CheckResult:
    """Compare the two sides."""
    from trimtab.parity.parity_verdict import parity_of, read_side

    sides = (
        read_side(section.train, section.train_traces or None),
        read_side(section.eval, section.eval_traces or None),
    )
    result = parity_of(*sides, section.margin)
    state: State = {0: "go", 1: "no-go"}.get(result["exit_code"], "undecided")  # type: ignore[assignment]
    evidence = result["headline"]
    grave = [row for row in result["differences"] if row["severity"] != "info"]
    if grave:
        evidence += f" {grave[0]['field']}: {grave[0]['train']} -> {grave[0]['eval']}; {grave[0]['why']}."
    advice = ""
    if state != "go":
        advice = "Write the same settings on both sides, or report the two scores apart."
    if state == "undecided":
        advice = "Evaluate more tasks on both sides, or accept a wider margin."
    return CheckResult(state, evidence, advice, result)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


CHECKS: dict[str, Callable[[Any], CheckResult]] = {
    "tools": tools_check, "reward": reward_check, "environment": environment_check, "parity": parity_check,
}  # fmt: skip
