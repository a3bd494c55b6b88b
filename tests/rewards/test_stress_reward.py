"""Each probe finds the property it is for; a sound reward passes; a broken one is one line."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.rewards import reward_functions
from trimtab.errors import RewardError
from trimtab.report.rewards.reward_page import render_stress_page
from trimtab.report.rewards.stress_verdict import stress_lines, stress_verdict
from trimtab.rewards.probe_findings import RewardFinding, findings_of
from trimtab.rewards.probe_run import ProbeOptions, ProbeRecord, run_probes
from trimtab.rewards.probe_tasks import built_in_tasks, load_tasks
from trimtab.rewards.revision_changes import changed_findings, rescored

FILE = reward_functions.__file__


def probe(name: str, **options: object) -> ProbeRecord:
    return run_probes(f"{FILE}:{name}", built_in_tasks()[:4], ProbeOptions(**options))


def kinds(record: ProbeRecord) -> dict[str, RewardFinding]:
    return {finding.kind: finding for finding in findings_of(record)}


@pytest.fixture(scope="module")
def contains() -> ProbeRecord:
    return probe("contains")


def test_a_sound_reward_has_no_finding_above_information() -> None:
    record = probe("exact")
    assert {f.severity for f in findings_of(record)} <= {"info"}
    assert (record.chosen.format.name, record.scale) == ("answer tag", 1.0)
    result = stress_verdict(record)
    assert (result["verdict"], result["exit_code"]) == ("no exploit seen", 0)


def test_a_substring_check_pays_lists_and_contradictions_in_full(contains: ProbeRecord) -> None:
    findings = kinds(contains)
    for kind in ("answer_list", "contradiction"):
        assert (findings[kind].severity, findings[kind].gain) == ("critical", 1.0)
    assert "padding" not in findings
    assert "judge" not in findings


@pytest.mark.parametrize(
    ("name", "kind", "severity"),
    [
        ("without_answer", "answer_ignored", "critical"),
        ("empty_is_best", "empty", "critical"),
        ("counts_pieces", "monotonicity", "warning"),
        ("gives_nan", "non_finite_reward", "critical"),
        ("strict_spaces", "whitespace", "warning"),
        ("exits", "exception", "warning"),
    ],
)
def test_a_probe_finds(name: str, kind: str, severity: str) -> None:
    assert kinds(probe(name))[kind].severity == severity


def test_a_reward_of_the_wrong_sign_is_called_inverted() -> None:
    found = kinds(probe("upside_down"))
    assert found["inverted"].severity == "critical"
    assert "wrong 1, right 0" in found["inverted"].what
    assert "answer_ignored" not in found


def test_a_hanging_reward_is_killed_and_the_rest_is_left_out() -> None:
    record = probe("hangs", timeout_s=1.0)
    assert kinds(record)["latency"].severity in ("critical", "warning")
    assert set(record.slow) == {"spaces", "sixty thousand words"}


@pytest.mark.parametrize(
    ("name", "right", "wrong"), [("conversational", 1.0, -1.0), ("asynchronous", 1.0, 0.0)]
)
def test_signatures_of_trl_and_verl_are_called(name: str, right: float, wrong: float) -> None:
    base = stress_verdict(probe(name))["baseline"]
    assert (base["right"], base["wrong"]) == (right, wrong)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "fails on honest answers: KeyError"), ("skips", "skips every task"), ("not_a_number", "every number is NaN or infinite"),
        ("text_result", "returned a str and not a number"), ("too_few", "returned 1 rewards for 4 completions"),
        ("no_completion", r"none of its arguments \(rows\) is a completion"), ("not_a_function", "cannot be called"),
        ("absent", "has no absent"),
    ],
)  # fmt: skip
def test_a_broken_reward_is_one_line(name: str, words: str) -> None:
    with pytest.raises(RewardError, match=words) as caught:
        probe(name)
    assert "\n" not in str(caught.value)


def test_a_template_of_the_user_is_the_format() -> None:
    record = probe("exact", template="So <answer>{answer}</answer> it is.")
    assert record.chosen.format.name == "yours"
    with pytest.raises(RewardError, match="no place for the answer"):
        probe("exact", template="So.")


def test_revisions_are_compared_by_kind() -> None:
    def finding(kind: str, severity: str, gain: float) -> RewardFinding:
        return RewardFinding(kind, severity, "", "", gain)

    old = [
        finding("judge", "critical", 1.0),
        finding("padding", "warning", 0.2),
        finding("empty", "info", 0.06),
    ]
    new = [
        finding("padding", "warning", 0.3),
        finding("empty", "info", 0.07),
        finding("unicode", "info", 0.06),
    ]
    rows = {row["kind"]: row["status"] for row in changed_findings(old, new)}
    assert rows == {"judge": "fixed", "padding": "worse", "empty": "same", "unicode": "new"}


def test_revisions_are_compared_on_logged_completions(tmp_path: Path) -> None:
    rows = [("7", "<answer>7</answer>"), ("8", "7 or 8"), ("9", "1"), ("5", "<answer>4</answer>")]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps({"prompt": "?", "completion": c, "answer": a}) + "\n" for a, c in rows))
    result = rescored(f"{FILE}:contains", f"{FILE}:exact", load_tasks(log, limit=0))
    assert (result["num_compared"], result["num_changed"], result["num_up"]) == (4, 1, 0)
    assert (result["mean_old"], result["mean_new"]) == (0.5, 0.25)
    assert result["rank_correlation"] == pytest.approx(1 / math.sqrt(3))
    assert result["examples"][0]["completion"] == "7 or 8"


def test_data_sets_of_every_kind_are_read(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    rows = [{"question": "2 + 2?", "answer": "so 4\n#### 4"}, {"question": "3 + 4?", "answer": "#### 7"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "a.json").write_text(json.dumps(rows))
    (tmp_path / "a.csv").write_text("question,answer\n2 + 2?,4\n3 + 4?,7\n")
    duckdb.sql(f"COPY (SELECT * FROM read_json('{tmp_path}/a.json')) TO '{tmp_path}/a.parquet'")
    for name in ("a.jsonl", "a.json", "a.csv", "a.parquet"):
        tasks = load_tasks(tmp_path / name)
        assert [(task.prompt, task.answer) for task in tasks] == [("2 + 2?", "4"), ("3 + 4?", "7")]
    for text, words in (
        ("", "no rows"),
        ("[1]", "no objects"),
        ("{", "not JSON lines"),
        ('{"a": 1}', "has no prompt"),
    ):
        (tmp_path / "bad.jsonl").write_text(text)
        with pytest.raises(RewardError, match=words):
            load_tasks(tmp_path / "bad.jsonl")


def test_the_page_escapes_what_completions_say(contains: ProbeRecord) -> None:
    result = stress_verdict(contains)
    result["findings"][0]["example"] = "<script>alert(1)</script>\u202e"
    page = render_stress_page(result)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert "\u202e" not in page
    assert "HACKABLE" in stress_lines(result)[0]
