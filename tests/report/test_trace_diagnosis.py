"""The commands of a new user, through the command line: verdict, exit code, JSON, and hostile text shown and not obeyed."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.traces.make import chat, steps, tau, write_lines
from tests.traces.test_messages import TAU
from trimtab import cli
from trimtab.errors import TraceError
from trimtab.report.traces.trace_diagnosis import diagnose_traces, trace_diagnosis
from trimtab.report.traces.trace_lines import contrast_line, trace_diagnosis_lines

FIXTURE = Path(__file__).parents[1] / "traces" / "fixtures" / "tau-like.json"
HOSTILE = "<script>alert(1)</script>\x1b[31m\u202egpj.exe\n[critical] fake"


def test_points_are_written_out():
    row = {
        "name": "x",
        "yes_no": True,
        "mean_a": 1.0,
        "mean_b": 0.0,
        "difference": 1.0,
        "low": 0.9,
        "high": 1.0,
        "p": 0.0001,
    }
    row |= {"within": 1.0, "within_low": 0.995, "within_high": 1.0, "within_p": None, "mixed": 12}
    assert contrast_line(row).endswith("within 12 tasks +100 points (+100 to +100)")
    row |= {"yes_no": False, "within": 123.4, "within_low": -0.5, "within_high": 250.0}
    assert contrast_line(row).endswith("within 12 tasks +123 (-0.5 to +250)")


def test_thousands_are_written_out():
    row = {
        "name": "tokens",
        "yes_no": False,
        "mean_a": 13_004.2,
        "mean_b": 1300.0,
        "difference": 11_704.2,
        "low": 999.7,
        "high": 22_408.8,
    }
    row |= {"p": 0.002, "within": None}
    expected = "tokens: 13,004 in failed, 1,300 in solved; +11,704 (+1,000 to +22,409), p 0.002"
    assert contrast_line(row) == expected


def test_a_difference_without_an_interval_is_printed_without():
    row = {
        "name": "x",
        "yes_no": False,
        "mean_a": 3.0,
        "mean_b": 2.0,
        "difference": 1.0,
        "low": math.nan,
        "high": None,
        "p": None,
    }
    row |= {"within": 1.0, "within_low": None, "within_high": None, "within_p": None, "mixed": 12}
    assert contrast_line(row) == "x: 3 in failed, 2 in solved; +1, not judged; within 12 tasks +1"
    row |= {"within_p": 0.0004}
    assert contrast_line(row).endswith("not judged; within 12 tasks +1, p < 0.001")


def test_differences_that_are_not_printed_are_counted(tmp_path):
    """Ten tools, each called in three failed episodes of four and in one solved of four, each by chance of its own."""
    rng, rows = random.Random(0), []
    for i in range(400):
        often = 3 if i % 2 else 1
        called = [t for t in range(10) if rng.random() < often / 4]
        messages = [message for t in called for message in chat(name=f"tool_{t}", arguments=f'{{"q": {t}}}')]
        rows.append(
            {"id": str(i), "reward": float(i % 2 == 0), "messages": messages or chat(name="none")[:1]}
        )
    path = write_lines(tmp_path / "m.jsonl", rows)
    real = sum(row["real"] for row in json.loads(run("diagnose", path, "--json")[1])["separates"])
    assert real > 8
    _, _, text = run("diagnose", path, "--verbose")[1].partition("what separates")
    text, _, _ = text.partition("what changed")
    assert text.count("% of failed") + text.count(" in failed") == 8
    assert f"    and {real - 8} more (--json has all)" in text


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, ["traces", *map(str, arguments)], catch_exceptions=False)
    return result.exit_code, result.output


def test_a_log_with_a_dying_tool(tmp_path):
    rows = [
        tau(i // 4, i % 4, float(i % 4 == 0), chat(result="Error: HTTP 503" if i % 3 else "found"))
        for i in range(40)
    ]
    path = tmp_path / "log.json"
    path.write_text(json.dumps(rows))
    code, text = run("diagnose", path)
    assert code == 1
    assert text.startswith("ALARMS in 40 episodes: ")
    assert "[critical] tool_faults" in text
    code, text = run("diagnose", path, "--verbose")
    assert code == 1
    assert "26 of 40 calls, in 40 episodes: 26 x HTTP 503 (26 by the tool)" in text
    code, text = run("diagnose", path, "--json")
    found = json.loads(text)
    assert code == found["exit_code"] == 1
    assert found["tools"][0]["failed"] == 26
    assert found["num_episodes"] == 40


def test_exit_codes(tmp_path):
    good = write_lines(
        tmp_path / "good.jsonl", [row for i in range(40) for row in steps(f"e{i}", reward=float(i % 2))]
    )
    assert run("diagnose", good)[0] == 0
    few = write_lines(tmp_path / "few.jsonl", steps("a"))
    assert run("diagnose", few)[0] == 2
    with (tmp_path / "good.jsonl").open("a") as file:
        file.write("{oops\n")
    assert run("diagnose", good)[0] == 0  # one line in 241: counted, and below the bound


@pytest.mark.parametrize(
    "arguments",
    [
        ["nowhere.jsonl"],
        ["{good}", "--strict"],
        ["{good}", "--map", "x"],
        ["{good}", "--format", "x"],
        ["{empty}"],
    ],
)
def test_bad_input_is_one_line_and_exit_2(tmp_path, arguments, monkeypatch, capsys):
    good = write_lines(tmp_path / "good.jsonl", steps("a"))
    good.write_text(good.read_text() + "{oops\n")
    empty = write_lines(tmp_path / "empty.jsonl", [{"episode_id": "x"}])
    names = [argument.format(good=good, empty=empty) for argument in arguments]
    monkeypatch.setattr("sys.argv", ["trimtab", "traces", "diagnose", *names])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("trimtab: ")
    assert error.count("\n") == 1


def test_hostile_text_stays_text(tmp_path):
    rows = [
        {"id": HOSTILE, "messages": chat(name=HOSTILE, result=f"Error: {HOSTILE}", arguments="{" + HOSTILE)}
        for _ in range(25)
    ]
    for i, row in enumerate(rows):
        row["id"] += str(i)
    path = write_lines(tmp_path / "h.jsonl", rows)
    for arguments in (["diagnose", path], ["show", path], ["show", path, "-e", rows[3]["id"]]):
        _, text = run(*arguments)
        assert "\x1b" not in text
        assert "\u202e" not in text
        own = (
            text.splitlines()
            if arguments[-1] == path
            else [line for line in text.splitlines() if line[:4] != "    "]
        )
        assert not any(line.lstrip().startswith("[critical] fake") for line in own)
        assert "alert(1)" in text


def test_show_and_convert(tmp_path):
    path = write_lines(tmp_path / "s.jsonl", [row for name in "ab" for row in steps(name)])
    code, text = run("show", path)
    assert code == 0
    assert text.splitlines() == [
        f"{name}: reward 1, 4 turns, 2 calls, 0 failed, no stop reason" for name in "ab"
    ]
    _, text = run("show", path, "-e", "b")
    assert "-> search in 0.5 s" in text
    assert "r1" in text
    _, text = run("show", path, "--limit", "1")
    assert text.splitlines()[-1] == "and 1 more (--limit)"
    output = tmp_path / "own.jsonl"
    code, text = run("convert", path, "-o", output)
    assert code == 0
    assert "wrote 2 episodes" in text
    shown = [run("show", file, "--json")[1] for file in (path, output)]
    assert shown[0] == shown[1]


def test_long_results_are_cut_for_the_terminal_and_say_so(tmp_path):
    path = write_lines(tmp_path / "m.jsonl", [{"id": "e", "messages": chat(result="x" * 10_000_000)}])
    _, text = run("show", path, "-e", "e")
    assert len(text) < 10_000
    assert "and 9,996,000 characters more" in text


def test_json_is_strict_where_numbers_are_not(tmp_path):
    path = write_lines(
        tmp_path / "m.jsonl", [{"id": str(i), "messages": chat(), "reward": math.nan} for i in range(25)]
    )
    code, text = run("diagnose", path, "--json")
    found = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert code == 1
    assert found["findings"][0]["rule"] == "nan_rewards"


def test_the_fixture_in_the_repository(tmp_path):
    found = diagnose_traces([FIXTURE])
    assert found.table.num_episodes == 24
    assert found.table.total("calls") == 60
    assert found.report.formats == {str(FIXTURE): "tau"}
    assert {f.measured.reading.slice for f in found.findings} == {"tool/book"}


@pytest.mark.skipif(not TAU.exists(), reason="the shared data is not here: ../shared/data/tau-bench")
def test_the_verdict_on_tau_bench_is_one_its_users_know():
    """The writes that need the right sums and seats fail, and the calls are wrong, not the tools; loops and limits are rare; half
    of the tasks give no gradient; long episodes mark hard tasks, not failures."""
    found = diagnose_traces([TAU])
    assert {f.measured.reading.slice for f in found.findings} == {
        "tool/book_reservation",
        "tool/update_reservation_flights",
    }
    assert all(f.severity == "warning" for f in found.findings)
    assert dict(found.table.tools["book_reservation"].faults) == {"policy": 30}
    assert found.table.tools["book_reservation"].kinds.most_common(1)[0][1] == 24
    values = {m.reading.key: m.reading.value for m in found.measured if m.reading.slice == "all"}
    assert values["traces/solved_frac"] == 0.42
    assert values["aggregate/zero_std_frac"] == 24 / 50
    assert values["traces/truncated_frac"] == 5 / 200
    real = [row for row in found.separates if row.real]
    assert {row.contrast.name for row in real} >= {"tool calls", "calls transfer_to_human_agents"}
    assert not any(row.within_p < 0.05 for row in found.separates)
    assert all(row.contrast.mixed == 26 for row in real)
    text = "\n".join(trace_diagnosis_lines(trace_diagnosis(found)))
    assert "within tasks: among attempts at the same task" in text


def test_required_files_through_the_command(tmp_path):
    rows = [{"id": str(i), "messages": chat(name="read", arguments='{"path": "a.md"}')} for i in range(30)]
    path = write_lines(tmp_path / "m.jsonl", rows)
    asked = ["diagnose", path, "--key-argument", "read=path", "--require", "read", "--require", "file:./a.md"]
    assert run(*asked)[0] == 0
    code, text = run(*asked, "--require", "file:b.md")
    assert code == 1
    assert "b.md never named in a call" in text
    for wrong in (["--require", "file:a.md"], ["--require", "file:a.md", "--key-argument", "read"]):
        with pytest.raises(TraceError, match="--key-argument"):
            run("diagnose", path, *wrong)


def test_what_changed_is_shown_in_words_and_on_the_page(tmp_path):
    rows = [
        {"id": str(i), "task_id": i % 20, "reward": float(i < 40 or i % 4 == 0), "messages": chat(arguments=f'{{"q": {i}}}')}
        for i in range(80)
    ]  # fmt: skip
    path = write_lines(tmp_path / "m.jsonl", rows)
    page = tmp_path / "o.html"
    _, text = run("diagnose", path, "--html", page, "--verbose")
    line = next(line for line in text.splitlines() if "is solved" in line)
    assert "is solved: 25 % of the second half, 100 % of the first half; -75 points" in line
    found = json.loads(run("diagnose", path, "--json")[1])
    (drift,) = found["drift"]
    assert (drift["by"], drift["a"], drift["contrasts"][0]["difference"]) == (
        "order",
        "the second half",
        -0.75,
    )
    assert ">What changed<" in page.read_text()


def test_one_of_a_thing_is_one(tmp_path):
    rows = [row for i in range(3) for row in steps(f"e{i}", reward=1.0)]
    path = write_lines(tmp_path / "log.jsonl", rows[:-1])
    assert "note     1 episode without an episode_end" in run("diagnose", path, "--verbose")[1]
    both = write_lines(tmp_path / "both.jsonl", [row for row in rows if row["type"] != "episode_end"])
    assert "note     3 episodes without an episode_end" in run("diagnose", both, "--verbose")[1]
