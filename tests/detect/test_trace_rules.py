"""Every rule of agent logs: fires on what it is for, stays silent on a healthy log, and says so when it cannot judge."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest
import scipy.stats

from tests.traces.test_table import episode
from trimtab.catalog import READINGS, TRACE_BOUNDS, TRACE_READINGS
from trimtab.detect.traces.multiple_testing import judge_contrasts
from trimtab.detect.traces.rules import TRACE_RULES, trace_findings, trace_verdict
from trimtab.measure.state.requirements import Requirements
from trimtab.measure.traces.contrasts import Contrast, contrasts
from trimtab.measure.traces.run_all import trace_readings
from trimtab.report.traces.compare import compare_tables
from trimtab.report.traces.trace_diagnosis import diagnose_table
from trimtab.report.traces.trace_lines import contrast_line
from trimtab.stats.intervals import share_interval
from trimtab.stats.student_t import t_tail
from trimtab.traces.core.episode import Call, Episode, Turn
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.table.build import tabulate

N = 60
SCHEMA = [{"name": "a", "parameters": {"required": ["q"]}}]


def _good(i: int, *more: Call, **fields) -> Episode:
    calls = [Call(name="a", arguments={"q": j}, result=f"r{j}", latency_s=0.2) for j in range(3)]
    given = {
        "id": f"e{i}",
        "task": f"t{i // 4}",
        "reward": float(i % 4 == 0),
        "success": i % 4 == 0,
        "stop_reason": "stop",
        "tools": SCHEMA,
        "time": 10.0 * i,
        "duration_s": 9.0 + 7.0 * (i % 5),
    }
    return episode(*calls, *more, **{**given, **fields})


def judged(log, report=None, **declared):
    table = tabulate(log)
    measured = trace_readings(
        table, report or ReadReport(num_lines=table.num_episodes), Requirements(**declared)
    )
    findings = trace_findings(measured)
    return findings, trace_verdict(findings, measured, table.num_episodes)


def _every(k: int, *calls: Call, **fields):
    return [_good(i, *(calls if i % k == 0 else ()), **(fields if i % k == 0 else {})) for i in range(N)]


def _fail(text: str, **fields) -> Call:
    return Call(name="a", arguments={"q": 9}, result=text, error=text, **fields)


def _said(text: str):
    return [
        Episode(
            id=str(i),
            turns=[
                Turn(role="user", content="Do it"),
                Turn(role="assistant", content=text if i % 2 else "Done."),
            ],
        )
        for i in range(N)
    ]


SICK = {
    "tool_failing": (_every(1, *[_fail("Error: no such row")] * 2), "warning"),
    "calls_failing": (
        [
            _good(
                i,
                *[Call(name=f"t{i % 12}_{j}", result="Error: boom", error="Error: boom") for j in range(5)],
                tools=None,
            )
            for i in range(N)
        ],
        "critical",
    ),
    "tool_slow": (_every(1, Call(name="a", arguments={"q": 1}, result="x", latency_s=30.0)), "warning"),
    "tool_faults": (_every(3, _fail("HTTP 503")), "critical"),
    "unknown_tools": (_every(1, Call(name="b", result="?")), "warning"),
    "bad_arguments": (_every(1, Call(name="a", bad_arguments="{", result="")), "warning"),
    "schema_errors": (_every(1, Call(name="a", arguments={}, result="")), "warning"),
    "unanswered_calls": (_every(1, Call(name="a", arguments={"q": 1})), "warning"),
    "loops": (_every(3, *[Call(name="a", arguments={"q": 8}, result="same")] * 3), "warning"),
    "repeated_calls": (_every(1, Call(name="a", arguments={"q": 0}, result="r0")), "warning"),
    "void_turns": (
        [Episode(id=str(i), turns=[*_good(i).turns, Turn(role="assistant", content="")]) for i in range(N)],
        "warning",
    ),
    "empty_answers": (
        [Episode(id=str(i), turns=[*_good(i).turns, Turn(role="assistant", content=" ")]) for i in range(N)],
        "warning",
    ),
    "refusals": (_said("I'm sorry, but I can't help with that."), "warning"),
    "language_switches": (_said("我不知道怎么做这件事情所以我会再试一次"), "warning"),
    "failure_burst": (
        [_good(i, *[_fail("Error: down")] * (24 <= i < 34), task=f"t{i % 15}") for i in range(N)],
        "warning",
    ),
    "failure_under_load": (
        [
            _good(
                i, *[_fail("Error: full")] * (i % 10 < 3), time=100.0 * i - 90 * (i % 10 < 3), duration_s=60.0
            )
            for i in range(300)
        ],
        "warning",
    ),
    "truncation": (_every(2, stop_reason="max_tokens"), "critical"),
    "constant_reward": ([_good(i, reward=0.5) for i in range(N)], "critical"),
    "hardly_solved": (_every(1, reward=0.0, success=False)[:100], "warning"),
    "groups_without_gradient": ([_good(i, reward=float(i // 4 % 2)) for i in range(N)], "warning"),
    "reward_against_success": (_every(3, success=False, reward=1.0), "warning"),
    "nan_rewards": (_every(30, reward=math.nan), "critical"),
}


def test_a_healthy_log_is_healthy_and_names_what_was_judged():
    findings, verdict = judged(_every(1), required_tools=["a"])
    assert findings == []
    assert (verdict.word, verdict.exit_code) == ("healthy", 0)
    for rule in TRACE_RULES:
        assert rule.name in verdict.reason


@pytest.mark.parametrize("name", SICK)
def test_each_rule_fires_on_what_it_is_for(name):
    log, severity = SICK[name]
    findings, verdict = judged(log)
    fired = {finding.rule.name: finding for finding in findings}
    assert name in fired
    assert fired[name].severity == severity
    if name not in ("constant_reward", "hardly_solved"):
        assert fired[name].measured.evidence
    assert verdict.exit_code == 1
    assert name in verdict.reason


def test_lines_and_required_tools():
    report = ReadReport(num_lines=100)
    for line in range(30):
        report.malformed("log", line, "not JSON")
    findings, _ = judged(_every(1), report, required_tools=["a", "gone"])
    assert [(f.rule.name, f.severity) for f in findings] == [
        ("tool_neglected", "critical"),
        ("malformed_lines", "critical"),
    ]
    assert findings[1].measured.evidence[0].source == "log:0"


def test_all_rules_are_tested_and_rest_on_the_catalog():
    assert {rule.name for rule in TRACE_RULES} == {*SICK, "tool_neglected", "malformed_lines", "cut_files"}
    for rule in TRACE_RULES:
        assert rule.key in TRACE_READINGS or rule.key in READINGS
        assert {rule.min_count, *rule.bounds} - {"zero"} <= set(TRACE_BOUNDS)
        assert rule.what
        assert rule.why
        assert rule.advice
    assert all(row.source and row.derivation for row in TRACE_BOUNDS.values())


def test_too_little_is_not_judged_and_nothing_is_blind():
    _, verdict = judged(_every(1)[:19])
    assert (verdict.word, verdict.exit_code) == ("not judged yet", 2)
    _, verdict = judged([Episode(id=str(i), turns=[Turn(role="user", content="x")]) for i in range(N)])
    assert (verdict.word, verdict.exit_code) == ("blind", 2)


def test_every_call_fails_though_no_tool_has_calls_enough_to_be_judged():
    log = [
        episode(Call(name=f"tool_{i % 20}", result="Error: boom", error="Error: boom"), id=str(i), reward=float(i % 2))
        for i in range(200)
    ]  # fmt: skip
    findings, _ = judged(log)
    assert [(f.rule.name, f.severity, f.measured.text) for f in findings] == [
        ("calls_failing", "critical", "200 of 200 calls, by text")
    ]
    assert len(findings[0].measured.evidence) == 5
    fine = [
        episode(Call(name=f"tool_{i % 20}", result="ok"), id=str(i), reward=float(i % 2)) for i in range(200)
    ]
    _, verdict = judged(fine)
    rules, _, few = verdict.reason.partition("; ")
    assert "calls_failing" in rules
    assert "tool_failing" not in rules
    assert "tool_failing not judged of tool_0, tool_1, tool_2, tool_3 and 16 more: fewer than 20 calls" in few
    one = _every(1, *[_fail("Error: no such row")] * 9)
    assert [f.rule.name for f in judged(one)[0] if f.rule.name.endswith("failing")] == ["tool_failing"]


def test_two_failures_of_three_calls_are_no_alarm():
    log = [*_every(1), episode(_fail("Error"), _fail("Error"), id="x")]
    rare = episode(*[Call(name="rare", result="Error", error="Error")] * 3, id="y")
    assert [f.rule.name for f in judged([*log, rare])[0]] == []


def test_decisions_agree_with_intervals_whatever_the_numbers():
    """A difference is real just where the interval printed beside it leaves out 0."""
    rng, real = np.random.default_rng(3), Counter()
    for _ in range(150):
        family = []
        for i in range(int(rng.integers(1, 12))):
            yes_no, n, mixed = bool(rng.random() < 0.5), int(rng.integers(2, 60)), int(rng.integers(0, 40))
            a = int(rng.integers(1, n + 1))
            gap, within = rng.choice([-1.0, 1.0, 0.0, *rng.normal(0, 0.3, 3)], 2)
            ses = rng.choice([0.0, 0.02, 0.05, 0.1, 0.3, math.nan], 2)
            family.append(Contrast(f"f{i}", yes_no, 0.5 + gap / 2, 0.5 - gap / 2, 30, 30, gap, ses[0], n, a, n - a // 2, within, ses[1], mixed))  # fmt: skip
        for one in judge_contrasts(family, budget=float(rng.choice([1.0, 0.8, 0.2]))):
            for low, high, p, decision in ((one.low, one.high, one.p, one.real), (one.within_low, one.within_high, one.within_p, one.real_within)):  # fmt: skip
                assert decision == (p < 0.05)
                if math.isfinite(low) and math.isfinite(p):
                    assert decision == (not low <= 0 <= high), (one, p)
                    real[decision] += 1
    assert min(real.values()) > 100


def test_p_is_bonferroni_s_over_all_tests_of_the_family():
    rows = [Contrast(f"f{i}", False, 1.0, 0.0, 30, 30, 1.0, se, 20, 20, 20, within, 0.5, 10) for i, (se, within) in enumerate([(0.3, 1.0), (0.5, math.nan), (0.9, 2.0)])]  # fmt: skip
    p = [2 * scipy.stats.t.sf(1 / se, 19) for se in (0.3, 0.5, 0.9)]
    half = 0.3 * scipy.stats.t.isf(0.05 / 5 / 2, 19)
    for budget in (1.0, 0.2):
        judged = judge_contrasts(rows, budget)
        assert [one.p for one in judged] == pytest.approx([min(1, 5 / budget * one) for one in p])
        assert {one.family for one in judged} == {5}
    assert judge_contrasts(rows)[0].low == pytest.approx(1 - half)
    assert judge_contrasts(rows)[0].within_p == pytest.approx(5 * 2 * scipy.stats.t.sf(2, 9))


def _random_table(rng, effect: float):
    log = []
    for i in range(120):
        task = i // 4
        hard = math.sin(task) > 0  # tasks differ in length and in chance of success
        solved = rng.random() < (0.2 if hard else 0.8)
        n = rng.poisson(3 + 4 * hard + (0 if solved else effect))
        calls = [Call(name=rng.choice(["a", "b", "c"]), arguments={"k": j}, result="x") for j in range(n)]
        log.append(episode(*calls, id=str(i), task=str(task), reward=float(solved)))
    return tabulate(log)


def test_contrasts_keep_their_level_within_tasks_and_find_what_was_planted():
    """In 100 logs whose attempts at one task differ by chance alone, a within-task contrast is real in about 5 % at most, while the
    plain ones see the hard tasks every time; a planted effect is found."""
    rng = np.random.default_rng(4)
    false_within, plain, found = 0, 0, 0
    for _ in range(100):
        table = _random_table(rng, 0.0)
        rows = judge_contrasts(contrasts(table, table.reward == 0, table.reward == 1))
        false_within += any(row.within_p < 0.05 for row in rows)
        plain += any(row.real for row in rows)
    assert false_within <= 12
    assert plain > 80
    for _ in range(20):
        table = _random_table(rng, 4.0)
        rows = judge_contrasts(contrasts(table, table.reward == 0, table.reward == 1))
        (calls,) = [row for row in rows if row.contrast.name == "tool calls"]
        found += calls.within_p < 0.05
        assert calls.low < calls.contrast.difference < calls.high
    assert found >= 18


@pytest.mark.parametrize("dof", [1, 2, 3, 9, 50, 99, 100])
def test_the_tail_of_t_is_scipy_s_however_far_out(dof):
    for t in (0.0, 0.5, 2.0, 5.0, 6.0, 6.5, 8.0, 10.0, 37.0, 1e3, 1e6):
        expected = scipy.stats.t.sf(t, dof)
        assert t_tail(t, dof) == pytest.approx(expected, rel=2e-6, abs=1e-300)
    assert t_tail(1e200, dof) == pytest.approx(0, abs=1e-199)


def _calls(n):
    return [Call(name="a", arguments={"q": j}, result=f"r{j}") for j in range(n)]


_TWICE = [
    Call(name="a", arguments={"q": f"x{j}"}, result=f"Error: HTTP 50{j}", error=f"Error: HTTP 50{j}") for j in (2, 3)
]  # fmt: skip


def _apart(log):
    table = tabulate(log)
    rows = judge_contrasts(contrasts(table, table.reward == 0, table.reward == 1))
    return rows, {row.contrast.name: row for row in rows}


def test_the_most_certain_difference_comes_first_however_certain_all_are():
    rng = np.random.default_rng(6)
    log = []
    for i in range(600):
        failed = i % 2
        n = int(rng.poisson(3 + 2.5 * failed)) + 1
        log.append(episode(*_calls(n), id=str(i), reward=1.0 - failed, tokens=1000.0 * (1 + failed) + rng.normal(0, 60), duration_s=rng.normal(9 + 7 * failed, 5)))  # fmt: skip
    rows, named = _apart(log)
    t = [abs(row.contrast.difference) / row.contrast.se for row in rows]
    assert t == sorted(t, reverse=True)
    assert rows[0].contrast.name == "tokens"
    assert 0 < named["tokens"].p < named["seconds"].p < 1e-15


def test_what_cancels_in_every_task_is_not_judged():
    """Ten tasks, each of three attempts that are the same in every one: the standard error is 0, and says nothing."""
    attempts = [(0.0, 1), (0.0, 3), (1.0, 1)]
    log = [
        episode(*_calls(n), id=f"{task}/{i}", task=str(task), reward=reward)
        for task in range(10)
        for i, (reward, n) in enumerate(attempts)
    ]
    _, named = _apart(log)
    one = named["tool calls"]
    assert one.contrast.difference == one.contrast.within == 1.0
    assert not one.real
    for unknown in (one.p, one.low, one.high, one.within_p, one.within_low, one.within_high):
        assert math.isnan(unknown)
    assert (
        contrast_line(asdict(one.contrast) | asdict(one))
        == "tool calls: 2 in failed, 1 in solved; +1, not judged; within 10 tasks +1"
    )


def test_sides_that_are_wholly_apart_differ_with_an_interval():
    """Fifteen tasks fail, each with a fault of the tool, and fifteen are solved without."""
    log = [
        episode(*(_TWICE if task < 15 else _calls(1)), id=f"{task}/{i}", task=str(task), reward=float(task >= 15))
        for task in range(30)
        for i in range(3)
    ]  # fmt: skip
    rows, named = _apart(log)
    one = named["has a failed call"]
    level = 0.05 / rows[0].family
    other = share_interval(0.0, 15, 1 - level)[1]
    assert (one.contrast.difference, one.contrast.se, one.real) == (1.0, 0.0, True)
    assert (one.low, one.high) == (pytest.approx(1 - 2 * other), 1.0)
    assert one.p == pytest.approx(
        rows[0].family * math.erfc(math.sqrt(15 / 2))
    )  # where Wilson's interval ends at 0


def test_attempts_that_are_wholly_apart_within_tasks():
    """Each of twelve tasks has a failed attempt of three calls and a solved one of two: a number has no interval, and p is 2 of 2^12."""
    log = [
        episode(*_calls(3 - solved), id=f"{task}/{solved}", task=str(task), reward=float(solved))
        for task in range(12)
        for solved in (0, 1)
    ]
    rows, named = _apart(log)
    one = named["tool calls"]
    assert one.p == one.within_p == pytest.approx(rows[0].family * 2 / 2**12)
    assert math.isnan(one.low)
    assert one.contrast.within == 1.0
    assert math.isnan(one.within_low)


def test_a_feature_that_never_varies_within_a_task_has_no_interval_of_zero_width():
    rng = np.random.default_rng(7)
    log = [
        episode(*_calls(1 + int(rng.integers(3))), *(_TWICE if task % 3 == 0 else []), id=f"{task}/{i}", task=str(task), reward=float(i == 0 or rng.random() < 0.5 * (task % 3 > 0)))
        for task in range(30)
        for i in range(3)
    ]  # fmt: skip
    rows, named = _apart(log)
    one = named["has a failed call"]
    other = share_interval(0.0, one.contrast.mixed, 1 - 0.05 / rows[0].family)[1]
    assert one.contrast.mixed >= 10
    assert (one.contrast.within, one.within_p) == (pytest.approx(0.0, abs=1e-12), 1.0)
    assert (one.within_low, one.within_high) == (pytest.approx(-other), pytest.approx(other))


def test_how_an_episode_ended_does_not_separate_failed_from_solved():
    """What a limit cut, and what ends in no answer, failed by what failing means; between two logs it is a difference."""
    log = [
        episode(*_calls(1 + i % 2), id=str(i), reward=float(i % 2), stop_reason="stop" if i % 2 else "max_steps")
        for i in range(60)
    ]  # fmt: skip
    for one in log[::2]:
        one.turns.append(Turn(role="assistant", content=""))
    table = tabulate(log)
    failed, solved = table.reward == 0, table.reward == 1
    assert {"ends in an empty answer", "tool calls"} <= {one.name for one in contrasts(table, failed, solved)}
    judged = diagnose_table(("x",), table, ReadReport(), Requirements(), 0.0)
    assert {one.contrast.name for one in judged.separates} == {"tool calls", "assistant turns"}
    assert all(one.real for one in judged.separates)


def test_intervals_of_shares_end_at_one():
    log = [
        episode(*(_TWICE if (i < 12) != (i == 0) else _calls(1)), id=str(i), reward=float(i >= 12))
        for i in range(24)
    ]  # fmt: skip
    rows, named = _apart(log)
    one = named["has a failed call"]
    assert one.contrast.difference > 0.8
    assert one.high == 1.0
    assert all(-1 <= row.low <= row.high <= 1 for row in rows if row.contrast.yes_no)


def test_a_log_compared_with_itself_has_no_difference():
    table = tabulate(_every(2, _fail("Error: x")))
    assert compare_tables(table, table)["verdict"] == "no difference found"


@pytest.mark.parametrize("declared", [True, False])
def test_a_tool_that_does_not_exist_is_unknown_and_not_failing(declared):
    """Its calls fail by words of its being unknown, or by others where the log declares its tools; a real one that fails does so."""
    tools = [{"name": "a", "parameters": {}}, {"name": "broken", "parameters": {}}] if declared else None
    said = "Error: boom" if declared else "Error: unknown tool web_lookup"
    made_up = Call(name="web_lookup", result=said, error=said)
    log = [
        _good(i, *[made_up] * (i % 2), *[Call(name="broken", result="Error: boom", error="Error: boom")] * (i % 3 > 0), tools=tools)
        for i in range(60)
    ]  # fmt: skip
    findings, _ = judged(log)
    assert [f.measured.reading.slice for f in findings if f.rule.name == "tool_failing"] == ["tool/broken"]
    assert [f.rule.name for f in findings].count("unknown_tools") == 1


def test_a_tool_that_answers_is_failing_though_its_errors_read_as_if_it_were_unknown():
    said = "Error executing tool get_user: function of user 7 not found"
    log = [
        _good(
            i, Call(name="get_user", result="ok"), Call(name="get_user", result=said, error=said), tools=None
        )
        for i in range(60)
    ]
    findings, _ = judged(log)
    assert [f.measured.reading.slice for f in findings if f.rule.name == "tool_failing"] == ["tool/get_user"]
