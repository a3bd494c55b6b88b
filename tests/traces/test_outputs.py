"""What is written never takes the place of a log that is read."""

from __future__ import annotations

import json

import pytest

from tests.report.test_trace_diagnosis import run
from tests.traces.make import steps, write_lines
from trimtab.errors import TraceError


@pytest.fixture
def log(tmp_path):
    return write_lines(
        tmp_path / "log.jsonl", [row for i in range(30) for row in steps(f"e{i}", reward=i % 2)]
    )


@pytest.mark.parametrize(
    "command", [("export", "--to", "sft", "-o"), ("convert", "-o"), ("diagnose", "--html")]
)
@pytest.mark.parametrize("by", ["its name", "a link", "its folder"])
def test_a_log_is_not_written_over(tmp_path, log, command, by):
    before, output = log.read_bytes(), log
    if by == "a link":
        output = tmp_path / "link.jsonl"
        output.symlink_to(log)
    source = tmp_path if by == "its folder" else log
    with pytest.raises(TraceError, match="is one of the logs; name another file to write"):
        run(command[0], source, *command[1:], output)
    assert log.read_bytes() == before


def test_a_card_does_not_take_the_place_of_a_log(tmp_path, log):
    card = log.rename(tmp_path / "o.jsonl.card.json")
    with pytest.raises(TraceError, match="is one of the logs"):
        run("export", card, "--to", "sft", "-o", tmp_path / "o.jsonl")


@pytest.mark.parametrize("name", ["-", "x.jsonl.gz", "x.parquet", "x.csv"])
def test_convert_writes_json_lines_only(tmp_path, log, name):
    output = name if name == "-" else tmp_path / name
    with pytest.raises(TraceError, match=r"name a \.jsonl file"):
        run("convert", log, "-o", output)
    assert {path.name for path in tmp_path.iterdir()} == {log.name}


def test_training_data_are_not_written_to_standard_output(log):
    with pytest.raises(TraceError, match=r"^- cannot name"):
        run("export", log, "--to", "sft", "-o", "-")


def test_a_folder_is_no_page(tmp_path, log):
    with pytest.raises(TraceError, match="is a folder; name the page"):
        run("diagnose", log, "--html", tmp_path)


@pytest.mark.parametrize("threshold", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("command", ["diagnose", "compare", "export"])
def test_a_threshold_is_a_number(tmp_path, log, command, threshold):
    more = {"export": ("--to", "sft", "-o", tmp_path / "o.jsonl"), "compare": (log,)}.get(command, ())
    with pytest.raises(TraceError, match=r"^--solved-at .*give a number"):
        run(command, log, *more, "--solved-at", threshold)


def test_prompts_with_an_attempt_of_unknown_outcome_are_counted(tmp_path):
    rows = [row for i in range(4) for row in steps(f"e{i}", reward=1.0)]
    rows += [{**row, "episode_id": "open"} for row in steps("e0")[:-1]]
    path = write_lines(tmp_path / "open.jsonl", rows)
    run("export", path, "--to", "grpo", "-o", tmp_path / "o.jsonl")
    written = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    said = (tmp_path / "o.jsonl.card.md").read_text()
    unknown = sum("solved" not in row for row in written)
    assert unknown == 1
    assert "rows without `solved`" in said


def test_convert_says_what_it_could_not_read(tmp_path):
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    log = write_lines(tmp_path / "x.jsonl", [{"talk": chat}] * 3)
    said = run("convert", log, "-o", tmp_path / "o.jsonl", "--map", "messages=talk", "--map", "id=no.where")[
        1
    ]
    assert "wrote 3 episodes" in said
    assert "3 records read, and --map id=no.where is in none of them" in said


def test_a_few_successes_do_not_make_the_rewards_unsaid(tmp_path):
    rows = [{"trimtab": 1, "id": str(i), "task": f"t{i // 4}", "reward": float(i % 4 < 1)} for i in range(80)]
    rows += [{"trimtab": 1, "id": f"x{i}", "task": "x", "success": i < 2} for i in range(4)]
    for row in rows:
        row["turns"] = [
            {"role": "user", "content": f"q{row['task']}"},
            {"role": "assistant", "content": f"a{row['id']}"},
        ]
    log = write_lines(tmp_path / "log.jsonl", rows)
    found = json.loads(run("diagnose", log, "--json")[1])
    [solved] = [r for r in found["readings"] if r["key"] == "traces/solved_frac"]
    assert (solved["value"], solved["n"]) == (22 / 84, 84)
    assert "where it says none a reward of 1" in found["solved_by"]
    run("export", log, "--to", "sft", "-o", tmp_path / "o.jsonl")
    assert len((tmp_path / "o.jsonl").read_text().splitlines()) == 22


def test_prompts_count_attempts_that_templates_cannot_write(tmp_path):
    broken = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{broken"}}
    rows = []
    for i in range(4):
        answer = {"role": "assistant", "content": f"a{i}", **({"tool_calls": [broken]} if i > 1 else {})}
        rows.append(
            {"task_id": "t", "reward": float(i < 2), "messages": [{"role": "user", "content": "q"}, answer]}
        )
    log = write_lines(tmp_path / "log.jsonl", rows)
    run("export", log, "--to", "grpo", "-o", tmp_path / "o.jsonl")
    [row] = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert (row["attempts"], row["solved"]) == (4, 2)
