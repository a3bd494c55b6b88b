"""The diagnosis of a metrics log: the rules that averages can feed, and, named one by one, those they
cannot."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.catalog import READINGS
from trimtab.detect.coarse_changes import coarse_changes
from trimtab.detect.detectors.composite_reading import FAMILIES
from trimtab.detect.pipeline import Pipeline
from trimtab.detect.rules.all_rules import RULES
from trimtab.detect.rules.rule import Rule
from trimtab.detect.verdict import Evidence, Verdict, judge
from trimtab.errors import MetricLogError
from trimtab.measure.sequences.metric_log import presence_of_log, reading_of, series_of_log
from trimtab.metric_logs import REPLACED, MetricLog, read_metric_log
from trimtab.report.alarms import alarm_counts, alarm_payload, alarms_lines, input_lines, rule_lines
from trimtab.report.control_characters import escape_controls
from trimtab.report.headline import verdict_payload
from trimtab.report.readings import judged_readings
from trimtab.report.screen import Screen, alarm_items, listing, note_line, sections, source_line
from trimtab.traces.agent_logs import is_agent_log
from trimtab.traces.core.plural import counted, noted
from trimtab.types import Alarm

_FIRST_TOLD = (*REPLACED, "rows superseded")
_AGENT_FORMATS = ("json", "jsonl", "parquet")
_CORE = ("reward", "kl", "entropy", "grad_norm")
"""Metrics that a verdict on a metrics log needs first."""
_MAP = "--map NAME=KEY, names: docs/reference/metric-keys.md"
_NO_RULE = "read by no rule (but for NaN and missing values)"
_FEW = "needs at least two of"
_NO_METRIC = re.compile(r"the log has no `(\w+)` \(")


@dataclass(frozen=True)
class LogDiagnosis:
    """What the rules say of a metrics log."""

    log: MetricLog
    verdict: Verdict
    alarms: list[Alarm]
    judged: tuple[str, ...]  # rules whose baseline the log completed
    pending: dict[str, int]  # rule -> values of its baseline so far
    not_run: dict[str, str]  # rule -> the input it lacks, in words
    num_clipped: dict[str, int]  # rule -> outliers its detector clipped to four robust standard deviations
    left_out: dict[str, int]  # rule -> values it did not take (`Pipeline.left_out`)
    unwatched: tuple[str, ...] = ()  # mapped metrics that no rule reads
    user_rules: tuple[Rule, ...] = ()
    # column -> steps with NaN or infinity
    nonfinite: Mapping[str, Sequence[int]] = field(default_factory=dict)


def diagnose_log(
    path: str | os.PathLike[str],
    framework: str | None = None,
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
    rules: Sequence[Rule] = (),
) -> LogDiagnosis:
    """Judge a log of averages by the built-in rules and by `rules`. Raises MetricLogError when it cannot be
    read, and for an agent log, unless `framework`, `format` or `mapping` says that it holds metrics."""
    try:
        log = read_metric_log(path, framework, format, mapping)
    except MetricLogError:
        _refuse_agent_log(_first_file(Path(path)), Path(path))
        raise
    if log.format in _AGENT_FORMATS and not (framework or format or mapping):
        _refuse_agent_log(Path(log.source), Path(path))
    pipeline = Pipeline((*RULES, *rules))
    seen = presence_of_log(log)
    pipeline.on_columns(seen.steps, seen.arrived, seen.nonfinite)
    series = series_of_log(log)
    pipeline.on_log(series)
    pipeline.alarms.sort(key=lambda alarm: alarm.step)
    judged, pending = pipeline.judged(), pipeline.pending()
    evidence = Evidence(
        num_steps=log.steps.size, observed=frozenset(), not_observed={}, num_windows=log.steps.size,
        judged=judged,
        pending=pending, tail_ready=False, aggregate_ready=pipeline.ready("aggregate"), post_tool_tokens=0,
        num_failures=0, num_failed_steps=0, last_failed=False, metrics_only=True,
        readings=judged_readings(pipeline), changes=coarse_changes(series),
        user_rules=tuple(rule.name for rule in rules),
    )  # fmt: skip
    lacking = {name: _lacks(key, log.mapped) for name, key in pipeline.without_input().items()}
    return LogDiagnosis(
        log,
        judge(pipeline.alarms, evidence),
        list(pipeline.alarms),
        judged,
        pending,
        lacking,
        pipeline.clipped(),
        pipeline.left_out(),
        _unwatched(log, pipeline),
        tuple(rules),
        {column: seen.steps[indices].tolist() for column, indices in seen.nonfinite.items()},
    )


def _refuse_agent_log(file: Path, path: Path) -> None:
    if file.is_file() and is_agent_log(file):
        raise MetricLogError(f"this is an agent log: trimtab traces diagnose {shlex.quote(str(path))}")


def _first_file(path: Path) -> Path:
    """A file itself; of a folder the first that may be an agent log."""
    return min((file for file in path.glob("*") if file.suffix[1:] in _AGENT_FORMATS), default=path)


def _unwatched(log: MetricLog, pipeline: Pipeline) -> tuple[str, ...]:
    """Mapped metrics that no rule reads; of the loss, its gap to the held-out loss is one that does."""
    read = {rule.key for rule in pipeline.rules}
    unread = [name for name in log.mapped if reading_of(name)[0] not in read]
    gap = "supervised/gap" in read and "held_out_loss" in log.columns
    return tuple(name for name in unread if not (gap and name == "loss"))


def _lacks(key: str, mapped: Collection[str]) -> str:
    """What would have to be there for a rule of this key to run, in words; `mapped`: metrics the log has."""
    family, _, name = key.partition("/")
    if family == "joint":
        members = [member.key[0].removeprefix("aggregate/") for member in FAMILIES[name]]
        there = [member for member in members if member in mapped]
        if len(there) > 1:
            return f"{' and '.join(there)} hardly vary over their first values, or seldom stand in one row"
        return f"{_FEW} {', '.join(members)}; the log has {there[0] if there else 'none'}"
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


def log_diagnosis(diagnosis: LogDiagnosis) -> dict[str, Any]:
    """The diagnosis as JSON types; NaN and infinity are the caller's to make strict."""
    log, names = diagnosis.log, ("judged", "pending", "not_run", "num_clipped", "left_out", "unwatched")
    judged = verdict_payload(
        diagnosis.verdict, diagnosis.alarms, log.steps.tolist(), diagnosis.user_rules, diagnosis.nonfinite
    )
    return {
        "log": log.source,
        "format": log.format,
        "framework": log.framework,
        "framework_why": log.why,
        **judged,
        "alarms": [alarm_payload(alarm, diagnosis.user_rules) for alarm in diagnosis.alarms],
        "tails": "not observed: a metrics log has no tokens",
        "mapped": log.mapped,
        "unmapped": list(log.unmapped),
        "excluded": log.excluded,
        **{name: getattr(diagnosis, name) for name in names},
        "notes": list(log.notes),
    }


def _not_run_lines(not_run: Mapping[str, str]) -> list[str]:
    """One line a missing input, with the rules that wait for it; the words in brackets are in the JSON
    form. Metrics share a line, and composite rules are listed last."""
    by_reason: dict[str, list[str]] = {}
    metrics = Counter(match[1] for why in not_run.values() if (match := _NO_METRIC.match(why)))
    for rule, why in not_run.items():
        if not _NO_METRIC.match(why):
            by_reason.setdefault(why.split(" (", 1)[0], []).append(rule)
    lines = [f"{why}: {listing(rules)}" for why, rules in by_reason.items() if not why.startswith(_FEW)]
    if metrics:
        names = [f"`{name}` ({counted(count, 'rule')})" for name, count in metrics.most_common()]
        lines = [f"the log has no {listing(names)}", f"  (give the key: {_MAP})", *lines]
    few = [f"{rules[0]} {why}" for why, rules in by_reason.items() if why.startswith(_FEW)]
    more = [f"and {len(few) - 5} more composite rules (--json)"] if few[5:] else []
    return [*lines, *few[:5], *more]


def _left_out_lines(excluded: Mapping[str, int]) -> list[str]:
    return [f"left out {noted(count, reason)}" for reason, count in excluded.items()]


def _key_lines(summary: Mapping[str, Any]) -> list[str]:
    """What was read as what, and apart from it what no rule reads, and keys without a name of ours."""
    mapped, unwatched = summary["mapped"], summary["unwatched"]
    read = [f"{ours} <- {theirs}" for ours, theirs in mapped.items() if ours not in unwatched]
    unread = [f"{ours} <- {mapped[ours]}" for ours in unwatched]
    parts = (("mapped", read), (_NO_RULE, unread), ("unmapped", summary["unmapped"]))
    return [f"{what} {listing(keys, 24)}" for what, keys in parts if keys]


def log_diagnosis_screen(summary: dict[str, Any]) -> list[str]:
    """Return `log_diagnosis` on one screen (`screen.Screen`)."""
    words = {word for key in summary["unmapped"] for word in re.findall("[a-z]+", key.lower())}
    core = [name for name in _CORE if name not in summary["mapped"] and name.split("_")[0] in words]
    return Screen(
        headline=summary["headline"],
        facts=[
            source_line(f"{_where(summary)}, framework {summary['framework']}", summary["log"]),
            *_left_out_facts(summary["excluded"]),
        ],
        counts=alarm_counts(summary["alarms"]),
        alarms=alarm_items(summary["alarms"]),
        notes=note_line(summary["alarms"]),
        unseen=_unseen(summary["not_run"]),
        next_command=("trimtab", "diagnose", summary["log"])
        + (("--map", f"{core[0]}=KEY") if core and summary["exit_code"] == 2 else ("--verbose",)),
    ).lines()


def _left_out_facts(excluded: Mapping[str, int]) -> list[str]:
    """One line a reason; nulls, which are rarely a loss, under --verbose."""
    cause = dict.fromkeys(REPLACED, " (a late row, or two writers)")
    facts = [
        f"{noted(count, reason)}{cause.get(reason, '')}"
        for reason, count in excluded.items()
        if " read as " not in reason
    ]
    more = [f"and for {counted(len(facts) - 4, 'more reason')} (--verbose)"] if len(facts) > 5 else []
    return [f"left out {fact}" for fact in (*facts[: 4 if more else 5], *more)]


def _where(diagnosis: dict[str, Any]) -> str:
    if not diagnosis["num_steps"]:
        return "no step"
    steps = f"steps {diagnosis['first_step']} to {diagnosis['last_step']}"
    return f"{steps}, {counted(diagnosis['num_steps'], 'row')}"


def _unseen(not_run: Mapping[str, str]) -> list[str]:
    """One line a kind of missing input, with the number of rules that cannot fire without it."""
    metrics = Counter(match[1] for why in not_run.values() if (match := _NO_METRIC.match(why)))
    names = sorted(metrics, key=lambda name: (name not in _CORE, -metrics[name]))
    more = f" and {len(names) - 4} more" if names[4:] else ""
    shown = ", ".join(f"`{name}`" for name in names[:4]) + more
    num_tokens = sum("log-probabilities" in why for why in not_run.values())
    num_tools = sum("tool calls" in why for why in not_run.values())
    num_others = len(not_run) - metrics.total() - num_tokens - num_tools
    missing = (
        (num_tokens, "the tokens' log-probabilities: watch the run (trimtab.open_run)"),
        (num_tools, "the tool calls: watch the run itself"),
        (metrics.total(), f"metrics the log lacks (docs/reference/metric-keys.md): {shown}"),
        (num_others, "pairs of these metrics, or parts of the reward"),
    )
    return [f"{counted(count, 'rule')} cannot fire without {what}" for count, what in missing if count]


def log_diagnosis_lines(summary: dict[str, Any]) -> list[str]:
    """Return `log_diagnosis` in full: plain text, safe to print whatever the log holds."""
    replaced = {reason: n for reason, n in summary["excluded"].items() if reason.startswith(_FIRST_TOLD)}
    others = {reason: count for reason, count in summary["excluded"].items() if reason not in replaced}
    reason = "" if summary["reason"].rstrip(".") in summary["headline"] else f": {summary['reason']}"
    lines = [
        summary["headline"],
        f"  {summary['log']}{reason}",
        f"  {_where(summary)}, format {summary['format']}, framework {summary['framework_why']}",
        f"  tails {summary['tails']}",
        *(f"  {line}" for line in _left_out_facts(replaced)),
        *alarms_lines(summary["alarms"]),
    ]
    lines += sections({
        "rules": rule_lines(summary),
        "rules that cannot fire": _not_run_lines(summary["not_run"]),
        "keys": _key_lines(summary),
        "values and rows": _left_out_lines(others) + input_lines(summary),
        "notes": summary["notes"],
    })  # fmt: skip
    return [escape_controls(line) for line in lines]
