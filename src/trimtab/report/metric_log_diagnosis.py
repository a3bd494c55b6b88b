"""The diagnosis of a metrics log: the rules that averages can feed, and, named one by one, those they cannot."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.catalog import READINGS
from trimtab.detect.detectors.composite_reading import FAMILIES
from trimtab.detect.pipeline import Pipeline
from trimtab.detect.rules.all_rules import RULES
from trimtab.detect.rules.rule import Rule
from trimtab.detect.verdict import Evidence, Verdict, judge
from trimtab.measure.sequences.metric_log import presence_of_log, reading_of, series_of_log
from trimtab.metric_logs import REPLACED, MetricLog, read_metric_log
from trimtab.report.alarms import alarm_payload, alarms_lines, taken_lines
from trimtab.report.control_characters import escape_controls
from trimtab.types import Alarm


@dataclass(frozen=True)
class LogDiagnosis:
    """`not_run`: rule -> the input it lacks, in words. `judged`: rules whose baseline the log completed.
    `drawn_in`: rule -> how many wild values its detector drew in to four deviations before it judged.
    `left_out`: rule -> how many values it did not take (`Pipeline.left_out`). `unwatched`: mapped metrics that no rule reads."""

    log: MetricLog
    verdict: Verdict
    alarms: list[Alarm]
    judged: tuple[str, ...]
    pending: dict[str, int]
    not_run: dict[str, str]
    drawn_in: dict[str, int]
    left_out: dict[str, int]
    unwatched: tuple[str, ...] = ()
    user_rules: tuple[Rule, ...] = ()


def diagnose_log(
    path: str | os.PathLike[str],
    framework: str | None = None,
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
    rules: Sequence[Rule] = (),
) -> LogDiagnosis:
    """What do the rules, and `rules` besides, say of a log of averages? Raises MetricLogError when it cannot be read."""
    log = read_metric_log(path, framework, format, mapping)
    pipeline = Pipeline((*RULES, *rules))
    seen = presence_of_log(log)
    pipeline.on_columns(seen.steps, seen.arrived, seen.nonfinite)
    pipeline.on_log(series_of_log(log))
    pipeline.alarms.sort(key=lambda alarm: alarm.step)
    judged, pending = pipeline.judged(), pipeline.pending()
    evidence = Evidence(
        num_steps=log.steps.size, observed=frozenset(), not_observed={}, num_windows=log.steps.size, judged=judged,
        pending=pending, tail_ready=False, aggregate_ready=pipeline.ready("aggregate"), post_tool_tokens=0,
        num_failures=0, num_failed_steps=0, last_failed=False, metrics_only=True,
        readings=_readings(pipeline), user_rules=tuple(rule.name for rule in rules),
    )  # fmt: skip
    lacking = {name: _lacks(key) for name, key in pipeline.without_input().items()}
    return LogDiagnosis(
        log,
        judge(pipeline.alarms, evidence),
        list(pipeline.alarms),
        judged,
        pending,
        lacking,
        pipeline.drawn_in(),
        pipeline.left_out(),
        _unwatched(log, pipeline),
        tuple(rules),
    )


def _readings(pipeline: Pipeline) -> tuple[str, ...]:
    """Keys of the readings that were judged; a joint reading is made of others."""
    judged = set(pipeline.judged())
    keys = dict.fromkeys(rule.key for rule in pipeline.rules if rule.name in judged)
    return tuple(key for key in keys if not key.startswith("joint/"))


def _unwatched(log: MetricLog, pipeline: Pipeline) -> tuple[str, ...]:
    """Mapped metrics that no rule reads; of the loss, its gap to the held-out loss is one that does."""
    read = {rule.key for rule in pipeline.rules}
    found = [name for name in log.mapped if reading_of(name)[0] not in read]
    gap = "supervised/gap" in read and "held_out_loss" in log.columns
    return tuple(name for name in found if not (gap and name == "loss"))


def _lacks(key: str) -> str:
    """What would have to be there for a rule of this key to run, in words."""
    family, _, name = key.partition("/")
    if family == "joint":
        members = ", ".join(member.key[0].removeprefix("aggregate/") for member in FAMILIES[name])
        return f"needs two at least of: {members}"
    what = READINGS[key].what
    if family == "aggregate":
        return f"the log has no `{name}` ({what}); name its key with --map {name}=KEY"
    if family == "supervised":
        return "the log has no `loss` together with `held_out_loss`; name their keys with --map"
    if family == "tools":
        return f"needs the run's tool calls, which no metrics log holds ({what}); watch the run itself"
    if family == "reward_part":
        return "the log has no two parts of the reward (TRL: rewards/<name>/mean)"
    return f"needs the tokens' log-probabilities, which no metrics log holds ({what}); watch the run itself"


def log_diagnosis(found: LogDiagnosis) -> dict[str, Any]:
    """The diagnosis as JSON types; NaN and infinity are the caller's to make strict."""
    log, steps = found.log, found.log.steps.tolist()
    return {
        "log": log.source,
        "format": log.format,
        "framework": log.framework,
        "framework_why": log.why,
        "verdict": found.verdict.word,
        "reason": found.verdict.reason,
        "exit_code": found.verdict.exit_code,
        "first_step": steps[0] if steps else None,
        "last_step": steps[-1] if steps else None,
        "num_steps": len(steps),
        "alarms": [alarm_payload(alarm, found.user_rules) for alarm in found.alarms],
        "tails": "not observed: a metrics log has no tokens",
        "mapped": log.mapped,
        "unwatched": list(found.unwatched),
        "unmapped": list(log.unmapped),
        "judged": list(found.judged),
        "pending": found.pending,
        "not_run": found.not_run,
        "excluded": log.excluded,
        "drawn_in": found.drawn_in,
        "left_out": found.left_out,
        "notes": list(log.notes),
    }


def _not_run_lines(not_run: Mapping[str, str]) -> list[str]:
    """One line a missing input, with the rules that wait for it; the words in brackets are in the JSON form."""
    by_reason: dict[str, list[str]] = {}
    for rule, why in not_run.items():
        by_reason.setdefault(why.split(" (", 1)[0], []).append(rule)
    lines = [f"  not run  {why}: {', '.join(rules)}" for why, rules in by_reason.items()]
    return [*lines, "           (name a key with --map NAME=KEY)"] if lines else []


def _left_out_lines(excluded: Mapping[str, int]) -> list[str]:
    return [f"  left out {count} {reason}" for reason, count in excluded.items()]


def _mapped_lines(mapped: Mapping[str, str], unwatched: Sequence[str]) -> list[str]:
    """What was read as what, and apart from it what no rule reads."""
    read = {ours: theirs for ours, theirs in mapped.items() if ours not in unwatched}
    unread = {ours: mapped[ours] for ours in unwatched}
    said = (("mapped  ", read), ("no rule  reads, but for NaN and silence:", unread))
    return [
        f"  {what} {', '.join(f'{ours} <- {theirs}' for ours, theirs in keys.items())}"
        for what, keys in said
        if keys
    ]


def log_diagnosis_lines(found: dict[str, Any]) -> list[str]:
    """The same for a person: plain text, safe to print whatever the log holds."""
    where = f"steps {found['first_step']} to {found['last_step']}" if found["num_steps"] else "no step"
    replaced = {reason: count for reason, count in found["excluded"].items() if reason in REPLACED}
    lines = [
        f"{found['log']}: {found['verdict'].upper()}",
        f"  {found['reason']}",
        f"  {where}, {found['num_steps']} rows, format {found['format']}, framework {found['framework_why']}",
        f"  tails {found['tails']}",
        *(
            f"{line}: a resume, a step counter that began anew, or two writers"
            for line in _left_out_lines(replaced)
        ),
        *alarms_lines(found["alarms"]),
        "",
        f"  judged   {', '.join(found['judged']) or 'no rule'}",
    ]
    lines += [
        f"  waiting  {rule}: {count} values, its baseline needs more"
        for rule, count in found["pending"].items()
    ]
    lines += _not_run_lines(found["not_run"])
    lines += _mapped_lines(found["mapped"], found["unwatched"])
    if found["unmapped"]:
        rest = len(found["unmapped"]) - 12
        lines.append(
            f"  unmapped {', '.join(found['unmapped'][:12])}{f' and {rest} more' if rest > 0 else ''}"
        )
    lines += _left_out_lines({r: count for r, count in found["excluded"].items() if r not in replaced})
    lines += taken_lines(found)
    lines += [f"  note     {note}" for note in found["notes"]]
    return [escape_controls(line) for line in lines]
