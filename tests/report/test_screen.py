"""The verdict fits one screen: a sentence with its parts, the alarms by severity, what was not observed, the next command."""

from __future__ import annotations

import json
import math
import re
import shlex
from pathlib import Path

import pytest
from reproduce.recorded_alarms import recorded_runs
from typer.testing import CliRunner

from tests.report.test_log_diagnosis import write
from tests.traces.make import chat, write_lines
from tests.traces.test_messages import TAU
from trimtab import cli
from trimtab.report.run_diagnosis import diagnosis, diagnosis_screen
from trimtab.report.run_view import load_view
from trimtab.report.screen import MAX_LINES, WIDTH, Item, Screen

ROOT = Path(__file__).parents[2]
SAMPLE = 6  # every so many of the bank
FIXTURE = ROOT / "tests" / "traces" / "fixtures" / "tau-like.json"
EXAMPLE = ROOT / "reproduce" / "verdict_example"
LOGS = sorted(TAU.parents[1].glob("real-logs/*/*.json*"))[:6]
ALARMED = re.compile(
    r"(ALARMS|UNHEALTHY) (since step \d+|at step \d+|from step \d+ to \d+|from step \d+, cleared at step \d+|at \d+ of the \d+ steps from \d+ to \d+): .+ \((\S+, )?slice \S+\)(; since step \d+ .+?)?(, with .+)?\. "
    r"(Last good step: \d+|No earlier step was good)\."
)
"""What broke, since when, in which slice, the last good step."""


def check(text: str) -> list[str]:
    lines = text.splitlines()
    assert len(lines) <= MAX_LINES
    command = next(i for i, line in enumerate(lines) if line.startswith("next: "))
    assert max(map(len, lines[:command])) <= WIDTH  # a command is whole, so that it can be pasted
    assert any(line.startswith("next: trimtab ") for line in lines[-2:])
    severities = [match[1] for line in lines if (match := re.match(r"  \[(critical|warning)\]", line))]
    assert severities == sorted(severities)
    return lines


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, [*map(str, arguments)], catch_exceptions=False)
    return result.exit_code, result.output


def sentence(lines: list[str]) -> str:
    return " ".join(lines[: next(i for i, line in enumerate(lines) if line.startswith("  "))])


def test_recorded_runs_fit_one_screen() -> None:
    bank = list(recorded_runs(("bank",)).values())
    for folder in (*recorded_runs(("gallery", "smollm2")).values(), *bank[::SAMPLE]):
        check_run(folder)


def check_run(folder: Path) -> None:
    found = diagnosis(load_view(folder))
    lines = check("\n".join(diagnosis_screen(found)))
    if found["exit_code"] == 1:
        assert ALARMED.fullmatch(sentence(lines)), lines
        serious = [alarm for alarm in found["alarms"] if alarm["severity"] != "info"]
        assert any(line.startswith(f"{len(serious)} alarm") for line in lines)
        since = re.search(r"(?:since|from) step (\d+)", lines[0])
        assert since
        assert int(since[1]) in {alarm["since"] for alarm in serious}
    else:
        assert sentence(lines).startswith(("HEALTHY up to step ", "BLIND: ", "NOT JUDGED YET: "))
    notes = len(found["alarms"]) - sum(alarm["severity"] != "info" for alarm in found["alarms"])
    assert not notes or any(line.startswith(f"{notes} note") for line in lines)


def test_the_example_in_the_repository_is_unhealthy_in_several_alarms() -> None:
    code, text = run("diagnose", EXAMPLE)
    assert code == 1
    lines = check(text)
    assert lines[0].startswith("UNHEALTHY since step ")
    assert ALARMED.fullmatch(sentence(lines))
    assert sum(line.startswith("  [") for line in lines) >= 4
    assert "not observed (--verbose says why):" in lines
    assert len(run("diagnose", EXAMPLE, "--verbose")[1].splitlines()) > MAX_LINES


def test_the_stored_alarms_of_the_example_are_those_of_the_rules_of_today() -> None:
    view = load_view(EXAMPLE)
    rows = [row for row in view.reader.rows("alarms") if row["event"] == "fired"]
    stored = sorted((row["rule"], row["fired"], row["since"], f"{row['bound']:.5g}") for row in rows)
    assert stored == sorted((a.rule, a.step, a.since, f"{a.bound:.5g}") for a in view.pipeline.alarms)
    for alarm in view.alarms:
        (reading,) = alarm.readings
        assert (reading.value < alarm.bound) == (alarm.rule == "sequence_ess_fall"), alarm


def test_the_example_is_warned_of_before_its_reward_falls_and_the_cause_is_named() -> None:
    """Rollouts become 8 updates old at step 75; the reward has lost 30 % of its best by step 100."""
    found = json.loads(run("diagnose", EXAMPLE, "--json")[1])
    early = [alarm for alarm in found["alarms"] if alarm["severity"] != "info" and alarm["step"] < 95]
    assert min(alarm["step"] for alarm in early) == 90
    incident = found["incidents"][0]
    assert (incident["slice"], incident["causes"][0]["name"]) == ("post_tool", "stale rollouts")


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name[:40])
def test_a_real_metrics_log_fits_one_screen(path: Path) -> None:
    check(run("diagnose", path)[1])


@pytest.mark.parametrize("n", [1, 14, 120])
def test_a_metrics_log_fits_one_screen(tmp_path: Path, n: int) -> None:
    def fallen(step: int) -> float:
        return 0.5 + 0.01 * math.sin(step) - (0.4 if step > 80 else 0.0)

    lines = check(run("diagnose", write(tmp_path / "m.jsonl", n=n, reward=fallen))[1])
    if n == 120:
        assert ALARMED.fullmatch(sentence(lines))
        assert "mean reward lost half of its level" in lines[0]
        assert re.search(r"since step (8\d)\b", lines[0])
        assert re.search(r"Last good step: (80|81|82|83)\.", sentence(lines))


@pytest.mark.parametrize("kind", ["calm", "failing", "hostile", "wide"])
def test_agent_logs_fit_one_screen(tmp_path: Path, kind: str) -> None:
    name = {"hostile": "a\x1b[31m\u202e" * 60, "wide": "工具" * 80}.get(kind, "search")
    result = "found" if kind == "calm" else "Error: HTTP 503"
    rows = [
        {"id": f"{name}{i}", "reward": i % 2, "messages": chat(name=f"{name}{t}", result=result)}
        for i in range(40)
        for t in range(3)
    ]
    folder = tmp_path / ("deep" * 12) / kind
    folder.mkdir(parents=True)
    path = write_lines(folder / "log.jsonl", rows)
    code, text = run("traces", "diagnose", path)
    lines = check(text)
    if kind != "calm":
        assert code == 1
        first = sentence(lines)
        assert first.startswith("ALARMS in ")
        assert "slice " in first
        assert kind != "failing" or re.search(r"First example: episode search\d+", first)
        assert any(line.startswith("next: trimtab traces show") for line in lines[-2:])


def test_more_alarms_than_lines_are_counted_and_a_long_command_goes_on_below() -> None:
    alarms = [Item(f"[warning] step {i} rule_{i}: {'words ' * 30}", "do it") for i in range(60)]
    path = f"/runs/{'x' * 180}"
    lines = Screen("UNHEALTHY since step 3: " + "so long " * 80, ["facts"] * 5, "60 alarms", alarms,
                   "3 notes: " + "n" * 300, ["a: b would go unseen"] * 20, ("trimtab", "diagnose", path, "--verbose")).lines()  # fmt: skip
    check("\n".join(lines))
    shown = sum(line.startswith("  [warning]") for line in lines)
    assert f"  and {60 - shown} more alarms: --verbose" in lines
    assert lines[-2:] == ["next: trimtab diagnose \\", f"      {path} --verbose"]
    assert shlex.split(" ".join(lines[-2:]).replace("\\", ""))[1:] == [
        "trimtab",
        "diagnose",
        path,
        "--verbose",
    ]


def test_lines_are_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were 110 columns wide on every terminal; without one they are 100."""
    parts = Screen("HEALTHY: " + "calm " * 60, ["fact " * 60], "", [], "", ["unseen " * 60], ("trimtab", "x"))
    assert max(map(len, parts.lines())) in range(WIDTH - 9, WIDTH + 1)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for columns in (80, 140):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert max(map(len, parts.lines())) in range(columns - 9, columns + 1)


def test_the_json_form_and_the_pages_carry_the_sentence_of_the_screen(tmp_path: Path) -> None:
    found = json.loads(run("diagnose", EXAMPLE, "--json")[1])
    assert sentence(run("diagnose", EXAMPLE)[1].splitlines()) == found["headline"]
    page = tmp_path / "page.html"
    assert run("report", EXAMPLE, "-o", page)[0] == 0
    html = page.read_text(encoding="utf-8")
    assert f"<h1>verdict_example: {found['headline']}</h1>" in html
    assert html.count(f">{found['headline']}<") == 0  # once a page
    assert len(re.findall(r"\b8 alarms\b", html.partition("<script")[0])) == 1
    assert html.count("Likely cause: stale rollouts (") == 1
    run("report", EXAMPLE, "-o", page, "--title", "night 3")
    assert f'<p class="sentence">{found["headline"]}</p>' in page.read_text(encoding="utf-8")
    code, text = run("traces", "diagnose", FIXTURE, "--html", page)
    assert code == 1
    assert f'<p class="sentence">{sentence(text.splitlines())}</p>' in page.read_text(encoding="utf-8")
