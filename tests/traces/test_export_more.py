"""Token ids in exports, labels of steps, and a folder that `datasets` loads."""

from __future__ import annotations

import importlib
import json
import math

import pytest
from datasets import Dataset, load_from_disk

from tests.report.test_trace_diagnosis import run
from tests.traces.make import chat, write_lines
from tests.traces.test_export import attempt, four_by_three, log
from trimtab import cli
from trimtab.errors import TraceError
from trimtab.traces.core.episode import Call, Episode, Turn
from trimtab.traces.export import ExportOptions, export
from trimtab.traces.export.token_columns import tokens_of
from trimtab.traces.native.episode_writer import TraceWriter


def _own(tmp_path, *episodes: Episode):
    path = tmp_path / "own.jsonl"
    with TraceWriter(path) as out:
        for episode in episodes:
            out.write(episode)
    return [path]


def _spoken(task: str, trial: int, reward: float, ids=(3, 4), **turn) -> Episode:
    words = " ".join(f"{task}{trial}{name}" for name in "abcdefgh")
    ask = Turn(role="user", content=f"Do {task}", token_ids=[1, 2])
    answer = Turn(role="assistant", content=words, token_ids=list(ids), logprobs=[-0.5] * len(ids), **turn)
    after = Turn(role="user", content="thanks", token_ids=[9])
    return Episode(id=f"{task}/{trial}", task=task, reward=reward, turns=[ask, answer, after])


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_token_ids_masks_and_logprobs_are_kept_to_the_agents_last_turn(tmp_path, suffix):
    paths = _own(tmp_path, _spoken("t", 0, 1.0), _spoken("t", 1, 0.0, (5, 6, 7), mask=[1, 0, 1]))
    output = tmp_path / f"o.{suffix}"
    made = export(paths, "dpo", output)
    (row,) = (Dataset.from_parquet if suffix == "parquet" else Dataset.from_json)(
        str(output), cache_dir=str(tmp_path / "c")
    ).to_list()
    assert row["chosen_token_ids"] == [1, 2, 3, 4]
    assert row["chosen_token_mask"] == [0, 0, 1, 1]
    assert row["chosen_token_logprobs"] == [None, None, -0.5, -0.5]
    assert row["rejected_token_ids"] == [1, 2, 5, 6, 7]
    assert row["rejected_token_mask"] == [0, 0, 1, 0, 1]
    assert made.card["balance"]["rows with token ids"] == 1
    (sft,) = export(paths, "sft", output).rows
    assert sft["token_ids"] == [1, 2, 3, 4]
    kto = export(paths, "kto", output).rows
    assert [len(r["token_ids"]) for r in kto] == [4, 5]


def test_an_episode_with_ids_of_some_turns_has_none_and_is_counted(tmp_path):
    part = _spoken("t", 1, 1.0)
    part.turns[0].token_ids = None
    odd = _spoken("u", 1, 1.0, mask=[1])
    nan = _spoken("v", 1, 1.0)
    nan.turns[1].logprobs = [math.nan, -1.0]
    made = export(_own(tmp_path, part, odd, nan), "sft", tmp_path / "o.jsonl")
    assert [row["token_ids"] for row in made.rows] == [None, None, [1, 2, 3, 4]]
    assert made.rows[2]["token_logprobs"] == [None, None, None, -1.0]
    assert (
        made.card["balance"]
        | {
            "rows with token ids": 1,
            "episodes with token ids of some turns only: ids left out": 1,
            "episodes whose masks or log-probabilities are not as many as their ids: ids left out": 1,
            "log-probabilities that are not finite, written as null": 1,
        }
        == made.card["balance"]
    )
    plain = export(four_by_three(tmp_path), "sft", tmp_path / "p.jsonl")
    assert "token_ids" not in plain.rows[0]
    assert "rows with token ids" not in plain.card["balance"]
    assert tokens_of(Episode(id="e")) == {}


def _steps_log(tmp_path):
    again = Call(name="look", arguments={"q": 1}, result="r1")
    turns = [
        Turn(role="system", content="Be good."), Turn(role="user", content="Do it."),
        Turn(role="assistant", content="I look.", calls=[again]),
        Turn(role="assistant", calls=[Call(name="look", arguments={"q": 2}, result="no such row", error="no such row")]),
        Turn(role="user", content="Well?"),
        Turn(role="assistant", calls=[Call(name="look", arguments={"q": 3}, result="HTTP 503", error="HTTP 503")]),
        Turn(role="assistant", calls=[again]),
        Turn(role="assistant", content=" "),
        Turn(role="assistant", calls=[Call(name="look", bad_arguments="{oops", error="no JSON", error_from="parse")]),
        Turn(role="assistant", content="x" * 100_000),
        Turn(role="user", content="bye"),
    ]  # fmt: skip
    others = [
        Episode(id="none", turns=[Turn(role="user", content="?")]),
        Episode(id="bare", turns=turns[2:3]),
    ]
    return _own(tmp_path, Episode(id="e", task="t", turns=turns), *others)


def test_labels_of_steps_and_their_reasons(tmp_path):
    made = export(_steps_log(tmp_path), "steps", tmp_path / "o.parquet")
    (row,) = Dataset.from_parquet(str(tmp_path / "o.parquet"), cache_dir=str(tmp_path / "c")).to_list()
    assert row["prompt"] == "Be good.\n\nDo it."
    assert row["labels"] == [True, False, True, False, False, False, True]
    assert row["reasons"] == [
        "nothing wrong", "a failed call", "failed by the tool's fault", "a call repeated to no avail", "an empty turn",
        "a call that cannot be read", "nothing wrong",
    ]  # fmt: skip
    assert (
        row["completions"][0] == 'I look.\n<tool_call>\n{"name": "look", "arguments": {"q": 1}}\n</tool_call>'
    )
    assert row["completions"][1].startswith("<tool_response>\nr1\n</tool_response>\n<tool_call>")
    assert "no such row" not in row["completions"][1]
    assert row["completions"][2].startswith(
        "<tool_response>\nno such row\n</tool_response>\n<user>\nWell?\n</user>\n"
    )
    assert "{oops" in row["completions"][5]
    assert row["completions"][6].endswith("x" * 100_000)
    assert made.card["left_out"] == {
        "episode without a turn of the assistant": 1,
        "episode without a prompt": 1,
    }
    assert (made.card["balance"]["steps labelled right"], made.card["balance"]["steps labelled wrong"]) == (
        3,
        4,
    )
    assert made.card["balance"]["messages and results after the agent's last turn, left out"] == 1


@pytest.mark.parametrize("kind", ["sft", "dpo", "kto", "grpo", "steps"])
def test_a_folder_of_datasets_holds_the_rows(tmp_path, kind):
    paths = four_by_three(tmp_path)
    made = export(paths, kind, tmp_path / "folder")
    assert load_from_disk(str(tmp_path / "folder")).to_list() == made.rows
    assert json.loads((tmp_path / "folder.card.json").read_text())["sha256"] == made.card["sha256"]
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "folder",
        "folder.card.json",
        "folder.card.md",
        "log.jsonl",
    ]
    with pytest.raises(TraceError, match="already exists"):
        export(paths, kind, tmp_path / "folder")


def test_a_folder_without_the_package_and_another_suffix_are_one_line(tmp_path, monkeypatch):
    paths, real = log(tmp_path, [attempt(1, 0, 1.0)]), importlib.import_module

    def missing(name, *rest):
        if name == "datasets":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(TraceError, match="pip install datasets"):
        export(paths, "sft", tmp_path / "folder")
    with pytest.raises(TraceError, match=r"neither \.parquet nor \.jsonl"):
        export(paths, "sft", tmp_path / "o.csv")
    assert list(tmp_path.glob("folder*")) == []


def test_the_command_writes_labels_of_steps(tmp_path):
    code, text = run("export", _steps_log(tmp_path)[0], "--to", "steps", "-o", tmp_path / "o.jsonl")
    assert code == 0
    assert "steps labelled wrong: 4" in text


def test_schemas_are_given_where_the_log_has_none_and_warned_of_where_nobody_gives_them(tmp_path):
    rows = [
        {"id": str(i), "task_id": i // 2, "reward": i % 2, "messages": chat(arguments=f'{{"q": "{i}"}}')}
        for i in range(4)
    ]
    flat = {"name": "search", "description": "look", "parameters": {"type": "object", "properties": {}}}
    rows[3]["tools"] = [{**flat, "description": "the log's own"}]
    log, out = write_lines(tmp_path / "log.jsonl", rows), tmp_path / "o.jsonl"
    (warning,) = export([log], "sft", out).card["warnings"]
    assert warning.startswith("3 of 4 episodes with calls have no tool schemas")
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([flat]))
    made = export([log], "sft", out, ExportOptions(tools=file))
    assert made.card["warnings"] == []
    assert made.card["rows with tool schemas"] == 2
    assert [row["tools"] for row in made.rows] == [
        [{"type": "function", "function": flat}],
        [{"type": "function", "function": {**flat, "description": "the log's own"}}],
    ]
    anthropic = {"name": "other", "input_schema": {"type": "object"}}
    file.write_text(json.dumps({"tools": [anthropic]}))
    made = export([log], "steps", out, ExportOptions(tools=file))
    assert made.rows[0]["tools"] == [
        {"type": "function", "function": {"name": "other", "parameters": {"type": "object"}}}
    ]
    assert made.card["warnings"] == ["called, and not in the file of --tools: search (3 calls)"]
    code, text = run("export", log, "--to", "sft", "-o", out, "--tools", file, "--json")
    assert code == 0
    assert "warning: called, and not in the file of --tools: search (3 calls)" in text
    for bad, why in (
        ("{", "JSON"),
        ("[]", "no list of tools"),
        ('[{"type": "function"}]', "tool 1 has no name"),
    ):
        file.write_text(bad)
        with pytest.raises(TraceError, match=why):
            export([log], "sft", out, ExportOptions(tools=file))
    with pytest.raises(TraceError, match="cannot be read"):
        export([log], "sft", out, ExportOptions(tools=tmp_path / "none.json"))


@pytest.mark.parametrize("kind", ["sft", "dpo", "kto", "grpo", "steps"])
@pytest.mark.parametrize("output", ["o.parquet", "o.jsonl", "folder"])
def test_strict_ends_at_the_first_malformed_line_and_touches_no_file(tmp_path, kind, output):
    (path,) = four_by_three(tmp_path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:5], "{cut", *lines[5:], "[]"]) + "\n")
    out = tmp_path / "out"
    out.mkdir()
    command = ("export", path, "--to", kind, "-o", out / output)
    with pytest.raises(TraceError, match=r"log\.jsonl:6: .*without --strict"):
        run(*command, "--strict")
    assert list(out.iterdir()) == []
    code, text = run(*command)
    assert (code, "malformed lines skipped: 2" in text) == (0, True)
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    with pytest.raises(TraceError):
        run(*command, "--strict")
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == before


def test_strict_lets_a_clean_log_through_and_holds_for_show(tmp_path):
    (path,) = four_by_three(tmp_path)
    assert run("export", path, "--to", "sft", "-o", tmp_path / "o.jsonl", "--strict")[0] == 0
    assert run("show", path, "--strict")[0] == 0
    path.write_text(path.read_text() + "{cut\n")
    code, text = run("show", path)
    assert (code, len(text.splitlines())) == (0, 12)
    for more in ((), ("-e", "1/0"), ("--json",)):
        with pytest.raises(TraceError, match=r"log\.jsonl:13: "):
            run("show", path, "--strict", *more)


@pytest.mark.parametrize("command", [("export", "--to", "sft", "-o", "{out}"), ("show",)])
def test_strict_is_one_line_and_exit_2(tmp_path, command, monkeypatch, capsys):
    (path,) = four_by_three(tmp_path)
    path.write_text("{cut\n" + path.read_text())
    words = [word.format(out=tmp_path / "o.jsonl") for word in command]
    monkeypatch.setattr("sys.argv", ["trimtab", "traces", *words, str(path), "--strict"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"trimtab: {path}:1: ")
    assert said.err.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["log.jsonl"]


def test_episodes_without_an_outcome_are_demonstrations_on_request(tmp_path):
    solved, failed, unscored = (_spoken("t", trial, reward) for trial, reward in enumerate((1.0, 0.0, None)))
    paths = _own(tmp_path, solved, failed, unscored)
    plain = export(paths, "sft", tmp_path / "a.jsonl")
    assert [row["episode"] for row in plain.rows] == ["t/0"]
    assert plain.card["left_out"]["episode without a reward or success"] == 1
    command = ["export", *paths, "--to", "sft", "-o", tmp_path / "b.jsonl", "--keep-unscored"]
    code, printed = run(*command)
    assert code == 0
    rows = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert [row["episode"] for row in rows] == ["t/0", "t/2"]
    assert "of 1 of 2 rows nothing says that the task was solved" in printed
    assert "rows of episodes without an outcome: 1" in printed


@pytest.mark.parametrize("kind", ["sft", "kto"])
def test_rewards_that_are_no_outcome_are_named_so(tmp_path, kind):
    paths = _own(tmp_path, _spoken("t", 0, 0.3), _spoken("t", 1, 7.0))
    with pytest.raises(
        TraceError, match=r"2 x episode of which nothing says whether it is solved: .* give --solved-at"
    ):
        export(paths, kind, tmp_path / "a.jsonl")
    assert len(export(paths, kind, tmp_path / "a.jsonl", ExportOptions(solved_at=1.0)).rows) == (
        1 if kind == "sft" else 2
    )


@pytest.mark.parametrize("reward", [None, 0.3])
def test_where_no_outcome_is_known_the_way_out_is_named(tmp_path, reward):
    paths = _own(tmp_path, _spoken("t", 0, reward))
    for kind, named in (("sft", True), ("kto", False)):
        with pytest.raises(TraceError) as raised:
            export(paths, kind, tmp_path / "a.jsonl")
        assert ("--keep-unscored" in str(raised.value)) is named
        assert ("--solved-at" in str(raised.value)) is (reward is not None)
    (tmp_path / "failed").mkdir()
    with pytest.raises(TraceError) as raised:
        export(_own(tmp_path / "failed", _spoken("t", 0, 0.0)), "sft", tmp_path / "a.jsonl")
    assert "--keep-unscored" not in str(raised.value)


def test_an_episode_without_an_outcome_did_not_fail_after_a_fault_of_a_tool(tmp_path):
    call = Call(name="t", arguments={}, result="HTTP 503", error="HTTP 503", error_from="log")
    turns = [Turn(role="user", content="q"), Turn(role="assistant", calls=[call])]
    paths = _own(tmp_path, Episode(id="a", turns=turns), _spoken("t", 0, 1.0))
    assert (
        dict(export(paths, "sft", tmp_path / "a.jsonl").card["left_out"])[
            "episode without a reward or success"
        ]
        == 1
    )
