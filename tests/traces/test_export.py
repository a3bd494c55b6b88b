"""Training data off logs: what a row holds, what is left out and counted, and that both file formats read back whole."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest
from datasets import Dataset

from tests.report.test_trace_diagnosis import run
from tests.traces.make import chat, write_lines
from tests.traces.test_messages import TAU
from trimtab.errors import TraceError
from trimtab.traces.export import KINDS, ExportOptions, export
from trimtab.traces.export.near_duplicates import without_near_duplicates
from trimtab.traces.read import read_episodes

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "search",
            "description": "look",
            "parameters": {"type": "object", "properties": {"q": {"type": "string"}}},
        },
    }
]


def attempt(task: int, trial: int, reward: float, **more):
    """Attempts at one task share their question; their calls and answers differ."""
    words = " ".join(f"{name}{task}x{trial}" for name in ("alpha", "beta", "gamma", "delta", "eta", "zeta"))
    messages = chat(arguments=json.dumps({"q": f"{task}-{trial}"}), result=more.pop("result", f"row {trial}"))
    messages[0]["content"] = f"Question {task}?"
    messages[-1]["content"] = f"{words} {'right' if reward else 'wrong'}"
    return {
        "id": f"{task}/{trial}",
        "task_id": task,
        "reward": reward,
        "messages": messages,
        "tools": TOOLS,
        **more,
    }


def log(tmp_path, rows):
    return [write_lines(tmp_path / "log.jsonl", rows)]


def four_by_three(tmp_path):
    return log(
        tmp_path, [attempt(task, trial, float(trial < task)) for task in range(4) for trial in range(3)]
    )


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
@pytest.mark.parametrize("kind", ["sft", "dpo", "kto", "grpo"])
def test_a_file_reads_back_as_it_was_made(tmp_path, kind, suffix):
    output = tmp_path / f"out.{suffix}"
    made = export(four_by_three(tmp_path), kind, output)
    load = Dataset.from_parquet if suffix == "parquet" else Dataset.from_json
    rows = load(str(output), cache_dir=str(tmp_path / "cache")).to_list()
    assert rows == made.rows
    assert rows[0]["tools"] == TOOLS
    assert made.card["sha256"] == sha256(output.read_bytes()).hexdigest()
    assert json.loads((tmp_path / f"out.{suffix}.card.json").read_text()) == json.loads(json.dumps(made.card))
    assert (tmp_path / f"out.{suffix}.card.md").read_text().startswith("# Data card")


def test_pairs_are_of_one_task_and_differ_in_outcome(tmp_path):
    made = export(four_by_three(tmp_path), "dpo", tmp_path / "o.jsonl")
    assert [row["task"] for row in made.rows] == ["1", "1", "2", "2"]  # tasks 0 and 3 have equal rewards
    for row in made.rows:
        task, good = row["chosen_episode"].split("/")
        assert row["rejected_episode"].split("/")[0] == task
        assert int(good) < int(task) <= int(row["rejected_episode"].split("/")[1])
        assert row["prompt"] == [{"role": "user", "content": f"Question {task}?"}]
        assert [m["role"] for m in row["chosen"]] == ["assistant", "tool", "assistant"]
        call = row["chosen"][0]["tool_calls"][0]
        assert call == {
            "type": "function",
            "function": {"name": "search", "arguments": {"q": f"{task}-{good}"}},
        }
    assert made.card["left_out"] == {"episode in no pair: every other attempt has its score": 6}
    assert made.card["balance"]["pairs with the same prompt, word for word"] == 4


def test_a_common_beginning_belongs_to_the_prompt(tmp_path):
    good, bad = attempt(1, 0, 1.0), attempt(1, 1, 0.0)
    for row in (good, bad):
        row["messages"][1:3] = chat()[1:3]
    made = export(log(tmp_path, [good, bad]), "dpo", tmp_path / "o.jsonl")
    (row,) = made.rows
    assert [m["role"] for m in row["prompt"]] == ["user", "assistant", "tool"]
    assert [m["role"] for m in row["chosen"]] == [m["role"] for m in row["rejected"]] == ["assistant"]


def test_attempts_with_other_tools_are_no_pair(tmp_path):
    rows = [attempt(1, 0, 1.0), attempt(1, 1, 0.0, tools=[]), attempt(2, 0, 1.0), attempt(2, 1, 0.0)]
    made = export(log(tmp_path, rows), "dpo", tmp_path / "o.jsonl")
    assert [row["task"] for row in made.rows] == ["2"]


def test_pairs_spread_over_attempts_and_match_sizes_on_request(tmp_path):
    rows = [attempt(1, i, float(i < 3)) for i in range(6)]
    for i, row in enumerate(rows):
        row["messages"][-1]["content"] += " word" * 40 * (i % 3)
    made = export(
        log(tmp_path, rows), "dpo", tmp_path / "o.jsonl", ExportOptions(per_task=3, match_length=True)
    )
    assert sorted((r["chosen_episode"], r["rejected_episode"]) for r in made.rows) == [
        ("1/0", "1/3"),
        ("1/1", "1/4"),
        ("1/2", "1/5"),
    ]
    assert made.card["left_out"]["pair beyond the limit a task"] == 6


def test_near_duplicates_go(tmp_path):
    rows = [attempt(1, 0, 1.0), attempt(1, 1, 0.0), {**attempt(1, 0, 1.0), "id": "again"}]
    rows[2]["messages"][2]["content"] = "another result"
    made = export(log(tmp_path, rows), "kto", tmp_path / "o.jsonl")
    assert [(row["episode"], row["label"]) for row in made.rows] == [("1/0", True), ("1/1", False)]
    assert made.card["left_out"] == {"near-duplicate of another episode of its task and outcome": 1}
    assert without_near_duplicates([]) == ([], 0)


def test_a_failure_that_was_a_tools_is_left_out_unless_asked_for(tmp_path):
    rows = [
        attempt(1, 0, 1.0, result="HTTP 503"),
        attempt(1, 1, 0.0, result="Error: HTTP 503"),
        attempt(1, 2, 0.0),
    ]
    made = export(log(tmp_path, rows), "kto", tmp_path / "o.jsonl")
    assert [row["episode"] for row in made.rows] == ["1/0", "1/2"]
    assert made.card["left_out"] == {"episode that failed after a fault of a tool": 1}
    kept = export(log(tmp_path, rows), "kto", tmp_path / "o.jsonl", ExportOptions(keep_tool_faults=True))
    assert len(kept.rows) == 3


def test_what_a_template_cannot_write_is_counted(tmp_path):
    broken = attempt(1, 0, 1.0)
    broken["messages"][1]["tool_calls"][0]["function"]["arguments"] = "{"
    rows = [
        broken,
        attempt(2, 0, 1.0),
        {**attempt(3, 0, 1.0), "messages": [{"role": "user", "content": "?"}]},
        {**attempt(4, 0, 1.0), "messages": chat()[1:]},
    ]
    made = export(log(tmp_path, rows), "sft", tmp_path / "o.jsonl")
    assert [row["episode"] for row in made.rows] == ["2/0"]
    assert sorted(made.card["left_out"].values()) == [1, 1, 1]


def test_long_results_are_whole_and_schemas_of_other_tools_are_not_mixed_in(tmp_path):
    rows = [attempt(1, 0, 1.0, result="x" * 300_000), attempt(2, 0, 1.0)]
    rows[1]["messages"][1]["tool_calls"][0]["function"]["arguments"] = '{"other": [1, {"a": null}]}'
    output = tmp_path / "o.parquet"
    export(log(tmp_path, rows), "sft", output)
    first, second = Dataset.from_parquet(str(output), cache_dir=str(tmp_path / "c")).to_list()
    assert len(first["messages"][2]["content"]) == 300_000
    assert second["messages"][1]["tool_calls"][0]["function"]["arguments"] == {"other": [1, {"a": None}]}


def test_graded_rewards_are_ranked_for_pairs_and_need_a_bound_elsewhere(tmp_path):
    paths = log(tmp_path, [attempt(1, 0, 0.9), attempt(1, 1, 0.2)])
    (row,) = export(paths, "dpo", tmp_path / "o.jsonl").rows
    assert (row["chosen_episode"], row["rejected_episode"]) == ("1/0", "1/1")
    with pytest.raises(
        TraceError,
        match=r"no kto row can be made of 2 episodes: 2 x episode of which nothing says whether it is solved",
    ):
        export(paths, "kto", tmp_path / "k.jsonl")
    assert len(export(paths, "kto", tmp_path / "k.jsonl", ExportOptions(solved_at=0.5)).rows) == 2


def test_misuse_is_one_line(tmp_path):
    paths = four_by_three(tmp_path)
    for kind, output, why in (
        ("rft", "o.jsonl", "unknown kind"),
        ("sft", "o.csv", "neither .parquet nor .jsonl"),
        ("sft", "no/o.jsonl", "cannot be written"),
    ):
        with pytest.raises(TraceError, match=why):
            export(paths, kind, tmp_path / output)


@pytest.mark.parametrize(
    ("option", "kinds"),
    [("keep-unscored", "sft"), ("same-prompt", "dpo"), ("match-length", "dpo"), ("keep-tool-faults", "sft dpo kto"), ("per-task=2", "dpo")],
)  # fmt: skip
@pytest.mark.parametrize("kind", KINDS)
def test_an_option_that_changes_nothing_is_refused(tmp_path, option, kinds, kind):
    command = ["export", *four_by_three(tmp_path), "--to", kind, "-o", tmp_path / "o.jsonl", f"--{option}"]
    if kind in kinds.split():
        assert run(*command)[0] == 0
        return
    name = option.partition("=")[0]
    with pytest.raises(TraceError, match=f"^--{name} changes nothing of {kind}, only of .*{kinds[-3:]};"):
        run(*command)
    assert not (tmp_path / "o.jsonl").exists()


@pytest.mark.skipif(not TAU.exists(), reason="the shared data is not here: ../shared/data/tau-bench")
def test_pairs_of_tau_bench(tmp_path):
    code, text = run("export", TAU, "--to", "dpo", "-o", tmp_path / "pairs.parquet")
    assert code == 0
    assert "rows: 88" in text
    rows = Dataset.from_parquet(str(tmp_path / "pairs.parquet"), cache_dir=str(tmp_path / "c")).to_list()
    rewards = {e.id: (e.task, e.reward) for e in read_episodes([TAU])[0]}
    assert len({row["task"] for row in rows}) == 26
    for row in rows:
        assert rewards[row["chosen_episode"]] == (row["task"], 1.0)
        assert rewards[row["rejected_episode"]] == (row["task"], 0.0)


def test_attempts_under_different_system_prompts_are_never_paired_and_the_card_says_so(tmp_path):
    """Two logs that number their tasks alike: airline and retail."""
    rows = []
    for domain, reward in (("retail", 1.0), ("airline", 0.0)):
        for task in (1, 2):
            row = attempt(task, len(domain), reward)
            row["messages"].insert(0, {"role": "system", "content": f"You are a {domain} agent."})
            rows.append(row)
    with pytest.raises(TraceError, match="2 x pair of attempts under different system prompts"):
        export(log(tmp_path, rows), "dpo", tmp_path / "o.jsonl")
    more = attempt(1, 9, 0.0)
    more["messages"].insert(0, rows[0]["messages"][0])
    made = export(log(tmp_path, [*rows, more]), "dpo", tmp_path / "o.jsonl")
    assert [(row["chosen_episode"], row["rejected_episode"]) for row in made.rows] == [("1/6", "1/9")]
    (warning,) = made.card["warnings"]
    assert warning.startswith("2 of 2 tasks (1, 2) have attempts under different system prompts")
    assert "2 pairs across prompts were not made" in warning
    assert f"**WARNING: {warning}**" in (tmp_path / "o.jsonl.card.md").read_text()
    made = export(log(tmp_path, rows), "grpo", tmp_path / "o.jsonl")
    assert [(row["task"], row["attempts"], row["solved"]) for row in made.rows] == [
        ("1", 1, 1),
        ("2", 1, 1),
        ("1", 1, 0),
        ("2", 1, 0),
    ]
    assert export(four_by_three(tmp_path), "dpo", tmp_path / "o.jsonl").card["warnings"] == []


def test_pairs_on_a_prompt_the_rejected_attempt_never_saw_are_warned_of_and_can_be_left_out(tmp_path):
    rows = [attempt(task, trial, float(trial == 0)) for task in (1, 2) for trial in (0, 1, 2)]
    for row in rows[1:3]:  # the simulated user opens task 1's failed attempts in words of its own
        row["messages"][0]["content"] += f" I mean {row['id']}."
    paths, output = log(tmp_path, rows), tmp_path / "o.jsonl"
    code, text = run("export", *paths, "--to", "dpo", "-o", output)
    assert code == 0
    assert text.splitlines()[4].startswith(
        "**WARNING: 2 of 4 pairs (50 %) rest on a prompt that the rejected"
    )
    made = export(paths, "dpo", output, ExportOptions(same_prompt=True))
    assert [row["task"] for row in made.rows] == ["2", "2"]
    assert made.card["warnings"] == []
    assert made.card["left_out"]["pair of attempts that began with other words (--same-prompt)"] == 2
    assert run("export", *paths, "--to", "dpo", "-o", output, "--same-prompt")[0] == 0
    assert len(output.read_text().splitlines()) == 2


def test_pairs_of_the_same_words_come_first(tmp_path):
    rows = [attempt(1, 0, 1.0), attempt(1, 1, 0.0), attempt(1, 2, 0.0)]
    rows[1]["messages"][0]["content"] += " Please."
    made = export(log(tmp_path, rows), "dpo", tmp_path / "o.jsonl", ExportOptions(per_task=1))
    assert [row["rejected_episode"] for row in made.rows] == ["1/2"]
