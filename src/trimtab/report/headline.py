"""The sentence that a diagnosis opens with: what broke, since when, in which slice, and the last good
step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.detect.rules.rule import Rule
from trimtab.detect.verdict import Verdict, agreeing
from trimtab.report.alarms import rule_summary
from trimtab.traces.core.plural import counted
from trimtab.types import Alarm

_MAX_OTHERS = 3  # rules named behind the first one


def run_headline(
    verdict: Verdict,
    alarms: Sequence[Alarm],
    steps: Sequence[int],
    user_rules: Sequence[Rule] = (),
    nonfinite: Mapping[str, Sequence[int]] | None = None,
) -> str:
    """Return the sentence of a run or of a metrics log.

    Of the alarms that made the run unhealthy the one that began first leads, and the worst is named behind
    it; else the first open alarm, critical ones first. `steps`: steps seen, in ascending order. `nonfinite`:
    column -> those of `steps` at which it held NaN or infinity.
    """
    serious = [alarm for alarm in alarms if alarm.severity != "info"]
    word = verdict.word.upper()
    if not serious:
        until = f" up to step {steps[-1]}" if verdict.word == "healthy" and steps else ""
        return f"{word}{until}: {verdict.reason.rstrip('.')}."
    group = agreeing(serious) or [min(serious, key=_order)]
    first, worst = min(group, key=_begin), min(group, key=_order)
    onset = first.since
    ends = [alarm.cleared for alarm in group if alarm.cleared is not None]
    when = (
        f"from step {onset}, cleared at step {max(ends)}"
        if len(ends) == len(group)
        else f"since step {onset}"
    )
    if first.rule == "nonfinite":
        end = math.inf if first.cleared is None else first.cleared
        bad = [step for step in (nonfinite or {}).get(first.slice, ()) if onset <= step < end]
        when = _steps_words(bad, steps) if bad else when
    reading = f"{first.readings[0].key}, " if first.readings else ""
    then = ""
    if worst.severity == "critical" and worst.rule != first.rule and first.severity != "critical":
        then = f"; since step {worst.since} {rule_summary(worst, user_rules)}"
    named = {first.rule, worst.rule if then else ""}
    others = _others([alarm.rule for alarm in group if alarm.rule not in named])
    known = [alarm for alarm in serious if alarm.step <= max(one.step for one in group)]
    good = last_good_step(onset, known, steps)
    last = "No earlier step was good" if good is None else f"Last good step: {good}"
    what = rule_summary(first, user_rules)
    return f"{word} {when}: {what} ({reading}slice {first.slice}){then}{others}. {last}."


def _steps_words(some: Sequence[int], steps: Sequence[int]) -> str:
    """Which of `steps` these are.

    >>> steps = range(10)
    >>> _steps_words([7, 8, 9], steps), _steps_words([4], steps), _steps_words([2, 3], steps)
    ('since step 7', 'at step 4', 'from step 2 to 3')
    >>> _steps_words([2, 5, 6], steps)
    'at 3 of the 5 steps from 2 to 6'
    """
    first, last = some[0], some[-1]
    span = sum(first <= step <= last for step in steps)
    if len(some) < span:
        return f"at {len(some)} of the {span} steps from {first} to {last}"
    if last == steps[-1]:
        return f"since step {first}"
    return f"at step {first}" if first == last else f"from step {first} to {last}"


def verdict_payload(
    verdict: Verdict,
    alarms: Sequence[Alarm],
    steps: Sequence[int],
    user_rules: Sequence[Rule] = (),
    nonfinite: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, Any]:
    """Return as JSON types what every diagnosis of a run says: the verdict, why, and of which steps."""
    return {
        "verdict": verdict.word,
        "reason": verdict.reason,
        "headline": run_headline(verdict, alarms, steps, user_rules, nonfinite),
        "exit_code": verdict.exit_code,
        "first_step": steps[0] if steps else None,
        "last_step": steps[-1] if steps else None,
        "num_steps": len(steps),
    }


def _begin(alarm: Alarm) -> tuple[bool, int, bool, int]:
    """What happened first; of alarms of the same step the worst."""
    return alarm.rule != "nonfinite", alarm.since, alarm.severity != "critical", alarm.step


def _order(alarm: Alarm) -> tuple[bool, bool, int]:
    return alarm.cleared is not None, alarm.severity != "critical", alarm.step


def last_good_step(onset: int, alarms: Sequence[Alarm], steps: Sequence[int]) -> int | None:
    """Return the last of `steps` before `onset` at which no alarm stood; None where there is none."""
    step = onset - 1
    while standing := [
        a.since for a in alarms if a.since <= step and (a.cleared is None or step < a.cleared)
    ]:
        step = min(standing) - 1
    return max((seen for seen in steps if seen <= step), default=None)


def trace_headline(verdict: Verdict, findings: Sequence[Mapping[str, Any]], num_episodes: int) -> str:
    """Return the sentence of agent logs: what is wrong, in which slice, how often, and an example."""
    word = verdict.word.upper()
    serious = [finding for finding in findings if finding["severity"] != "info"]
    if not serious:
        return f"{word}: {verdict.reason.rstrip('.')}."
    first = serious[0]
    seen = first["numbers"].partition(":")[0]
    others = _others([f["rule"] for f in serious if f["rule"] != first["rule"]])
    example = next((evidence for evidence in first["evidence"] if evidence["episode"]), None)
    where = f" First example: episode {example['episode']}" if example else ""
    step = f", step {example['step']}" if example and example["step"] >= 0 else ""
    # A solve rate near zero is said in words even where a graver alarm leads: it puts every other reading in
    # doubt.
    solved = next((f["numbers"].partition(":")[0] for f in serious[1:] if f["rule"] == "hardly_solved"), "")
    solved = f" Hardly any task is solved: {solved}." if solved and first["rule"] != "hardly_solved" else ""
    return (
        f"{word} in {counted(num_episodes, 'episode')}: {first['what']} ({first['key']}, slice "
        f"{first['slice']}; {seen}){others}.{where}{step}{'.' if where else ''}{solved}"
    )


def _others(rules: Sequence[str]) -> str:
    """The other rules, the first few by name.

    >>> _others(["kl_high", "kl_high"]), _others([]), _others(list("abcde"))
    (', with kl_high', '', ', with a, b, c and 2 more')
    """
    names = list(dict.fromkeys(rules))
    more = f" and {len(names) - _MAX_OTHERS} more" if len(names) > _MAX_OTHERS else ""
    return f", with {', '.join(names[:_MAX_OTHERS])}{more}" if names else ""
