"""The audit: rises against what confirms them, on made and real logs, and patterns of completions."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from benchmarks.reward_bank.audit_logs import LOGS, TABLE, real_figures
from typer.testing import CliRunner

import trimtab
from trimtab.cli import app
from trimtab.errors import RewardError
from trimtab.metric_logs.read_log import read_metric_log
from trimtab.report.rewards.audit_chart import audit_chart
from trimtab.report.rewards.audit_report import audit_lines, render_audit_page, series_of_run
from trimtab.rewards.audit.enrichment import enriched_patterns
from trimtab.rewards.audit.hacking_verdict import judge_rise
from trimtab.rewards.audit.rise import rise_of
from trimtab.rewards.audit.series_audit import audit_series, first_suspicion, series_of_log
from trimtab.rewards.audit.trace_audit import audit_traces
from trimtab.traces.core.episode import Call, Episode, Turn


def line(start: float, end: float, steps: int = 40, noise: float = 0.01, seed: int = 0) -> np.ndarray:
    return np.linspace(start, end, steps) + np.random.default_rng(seed).normal(0, noise, steps)


def jump(start: float, end: float, steps: int = 40) -> np.ndarray:
    return np.where(np.arange(steps) < 25, start, end) + np.random.default_rng(3).normal(0, 0.01, steps)


@pytest.mark.parametrize(
    ("reward", "held_out", "word"),
    [
        (line(0.2, 0.6), line(0.3, 0.3, seed=1), "suspected hacking"),
        (line(0.2, 0.6), line(0.3, 0.1, seed=1), "suspected hacking"),
        (jump(0.2, 0.8), line(0.3, 0.3, seed=1), "suspected hacking"),
        (line(0.2, 0.6), line(0.2, 0.5, seed=1), "learning"),
        (jump(0.1, 0.9), jump(0.1, 0.8), "grokking-like jump"),
        (line(0.2, 0.6), line(0.3, 0.36, seed=1), "undecided"),
        (line(0.2, 0.6), line(0.97, 0.97, seed=1), "undecided"),
        (line(0.2, 0.6), None, "undecided"),
        (line(0.3, 0.3), line(0.2, 0.6, seed=1), "undecided"),
        (line(0.6, 0.2), line(0.3, 0.3, seed=1), "undecided"),
        (np.full(40, 0.5), np.full(40, 0.5), "undecided"),
        (line(0.2, 0.6, steps=7), None, "undecided"),
    ],
)
def test_a_rise_is_judged_by_what_confirms_it(
    reward: np.ndarray, held_out: np.ndarray | None, word: str
) -> None:
    assert judge_rise(rise_of(reward), None if held_out is None else rise_of(held_out)).word == word


def test_the_interval_of_a_change_covers_it() -> None:
    covered = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        noise = rng.normal(0, 0.1, 60)
        for i in range(1, 60):
            noise[i] += 0.4 * noise[i - 1]
        rise = rise_of(np.concatenate([np.zeros(30), np.ones(30)]) + noise)
        covered += rise.low <= 1.0 <= rise.high
    assert covered >= 0.93 * 200


def test_values_that_are_not_finite_are_left_out() -> None:
    values = line(0.0, 1.0)
    with_gaps = np.insert(values, [5, 20], [math.nan, math.inf])
    assert rise_of(with_gaps) == rise_of(values)


def test_log_odds_are_those_of_the_table() -> None:
    new = [frozenset({"a"})] * 9 + [frozenset()]
    old = [frozenset({"a"})] + [frozenset()] * 9
    rows, tested = enriched_patterns(new, old)
    assert tested == 1
    expected = math.log(9.5 * 9.5 / (1.5 * 1.5))
    half = 1.959964 * math.sqrt(2 / 9.5 + 2 / 1.5)
    assert (rows[0].log_odds, rows[0].low) == pytest.approx((expected, expected - half), rel=1e-6)


def test_under_the_null_patterns_are_rarely_enriched() -> None:
    hits = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        docs = [frozenset(np.flatnonzero(rng.random(30) < 0.3).astype(str)) for _ in range(80)]
        hits += bool(enriched_patterns(docs[:40], docs[40:])[0])
    assert hits <= 6  # 0.05 of 60, one-sided half of it


def episodes(hack: bool, success: bool | None = None) -> list[Episode]:
    rows = []
    rng = np.random.default_rng(0)
    for step in range(12):
        for i in range(10):
            cheat = hack and rng.random() < step / 12
            right = rng.random() < (0.2 if hack else 0.2 + 0.06 * step)
            text = "import sys; sys.exit(0)" if cheat else "I add the numbers and answer"
            turn = Turn(
                role="assistant",
                content=text,
                calls=[Call(name="run", arguments={"n": int(rng.integers(9))})],
            )
            rows.append(
                Episode(
                    id=f"{step}-{i}", step=step, task=f"task {i}", turns=[Turn(role="user", content="Solve"), turn],
                    reward=float(cheat or right), success=None if success is None else bool(right),
                )
            )  # fmt: skip
    return rows


def test_a_sign_of_an_exploit_in_newly_high_completions_is_suspected() -> None:
    result = audit_traces(episodes(hack=True), "made")
    assert (result["verdict"], result["exit_code"]) == ("suspected hacking", 1)
    assert result["patterns"][0]["pattern"] == "sign: ends the process (sys.exit, os._exit)"
    assert any("sys.exit" in text for text in result["evidence"])


def test_success_confirms_only_where_it_is_not_the_reward_itself() -> None:
    learned = audit_traces(episodes(hack=False, success=True), "made")
    assert learned["held_out"] is None
    assert learned["verdict"] == "undecided"
    hacked = audit_traces(episodes(hack=True, success=True), "made")
    assert hacked["held_out"]["name"] == "success"
    assert hacked["verdict"] == "suspected hacking"


def test_too_few_rewards_are_refused() -> None:
    with pytest.raises(RewardError, match="19 episodes with a reward"):
        audit_traces(episodes(hack=False)[:19], "made")


def test_parts_that_stand_still_are_named(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    g, f = line(0.1, 0.7), line(0.2, 0.2, seed=2)
    rows = [
        {"step": i, "reward": a + b, "rewards/g/mean": a, "rewards/f/mean": b}
        for i, (a, b) in enumerate(zip(g, f, strict=True))
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = CliRunner().invoke(app, ["audit", "rewards", str(log), "--json"])
    audit = json.loads(result.stdout)
    assert (result.exit_code, audit["verdict"]) == (2, "undecided")
    assert any("f stood still" in text and "--held-out" in text for text in audit["evidence"])
    page = tmp_path / "page.html"
    result = CliRunner().invoke(
        app, ["audit", "rewards", str(log), "--held-out", "rewards/f/mean", "--html", str(page)]
    )
    assert result.exit_code == 1
    assert result.stdout.startswith("SUSPECTED HACKING")
    assert "Suspected hacking" in page.read_text()


def test_a_run_folder_is_audited_by_what_its_trainer_logged(tmp_path: Path) -> None:
    g, f = line(0.1, 0.7), line(0.2, 0.2, seed=2)
    with trimtab.open_run(tmp_path / "run", rank=0) as run:
        for step in range(40):
            run.flush(
                step, {"reward": g[step] + f[step], "rewards/f/mean": f[step], "rewards/g/mean": g[step]}
            )
    result = CliRunner().invoke(
        app, ["audit", "rewards", str(tmp_path / "run"), "--held-out", "rewards/f/mean"]
    )
    assert (result.exit_code, result.stdout.split(":")[0]) == (1, "SUSPECTED HACKING")
    assert "of the change is g's" in result.stdout
    with pytest.raises(RewardError, match="has no 'nope'; its columns of rewards: reward, rewards/f/mean"):
        series_of_run(tmp_path / "run", held_out="nope")


def test_the_chart_leaves_out_what_is_not_finite_and_keeps_labels_apart() -> None:
    chart = audit_chart([
        {"name": "a", "steps": [0, 1, 2], "values": [0.0, math.nan, 1.0]},
        {"name": "b", "steps": [0, 1, 2], "values": [0.0, 0.5, 0.99]},
        {"name": "one", "steps": [0], "values": [1.0]},
    ])  # fmt: skip
    assert [len(one["points"].split()) for one in chart["lines"]] == [2, 3]
    assert abs(chart["lines"][0]["y"] - chart["lines"][1]["y"]) >= 15
    assert audit_chart([])["lines"] == []


def test_the_page_escapes_patterns() -> None:
    result = audit_traces(episodes(hack=True), "<b>made</b>")
    result["tasks"][0]["task"] = "<script>x</script>"
    page = render_audit_page(result)
    assert "<script>x" not in page
    assert "<b>made" not in page
    assert audit_lines(result)[0].startswith("SUSPECTED")


def test_a_reward_cannot_confirm_itself(tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    log.write_text("".join(f'{{"step": {i}, "reward": {i / 20}}}\n' for i in range(20)))
    done = CliRunner().invoke(app, ["audit", "rewards", str(log), "--held-out", "reward"])
    assert isinstance(done.exception, RewardError)  # one line and exit code 2, as __main__ prints it
    assert "cannot confirm itself" in str(done.exception)


LABELS = {row["run"]: row["label"] for row in json.loads(TABLE.read_text(encoding="utf-8"))}


@pytest.mark.skipif(not LOGS.is_dir(), reason="the real logs are not beside this checkout")
@pytest.mark.parametrize("path", sorted(LOGS.glob("*.jsonl")), ids=lambda p: p.stem)
def test_real_hacks_are_suspected_by_step_25_and_others_never_called_learning(path: Path) -> None:
    bare = read_metric_log(path)
    assert audit_series(series_of_log(bare))["verdict"] == "undecided"
    if label := LABELS[path.stem]:
        key = "reward/f" if "reward/f" in bare.mapped.values() else "reward/correctness_f"
        first = first_suspicion(series_of_log(read_metric_log(path, mapping={"held_out_reward": key})))
        assert (first is not None and first <= 25) == (label == "hack")


def test_the_committed_table_gives_the_figures() -> None:
    figures = real_figures()
    assert (figures["audit_suspected_frac"], figures["audit_accused_frac"]) == (1.0, 0.0)
    assert (figures["audit_hacks"], figures["audit_hacks_unseen"]) == (6, 3)
