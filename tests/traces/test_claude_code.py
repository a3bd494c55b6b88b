"""Claude Code's logs. The fixtures were written by Claude Code 2.1.197 itself, which a scripted model answered on this
machine (`claude -p`, `--resume`, `--fork-session`, `/compact`); `fixtures/coding_agents/shorten.py` cut its makers' texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.traces.make import write_lines
from trimtab.errors import TraceError
from trimtab.report.traces.trace_diagnosis import diagnose_traces
from trimtab.traces.errors.attribution import fault_of
from trimtab.traces.errors.unknown_tools import says_unknown_tool
from trimtab.traces.read import read_episodes

LOGS = Path(__file__).parent / "fixtures" / "coding_agents"
SESSION = LOGS / "claude" / "8660269a-5833-43ee-b07d-7d6e83887986.jsonl"
MAIN = SESSION.stem


@pytest.fixture(scope="module")
def project():
    """A project's folder: a session with two sub-agents, compacted and resumed, and a fork of it."""
    episodes, report = read_episodes([LOGS / "claude"])
    return {one.id: one for one in episodes}, report


def outcomes(episode):
    return [(c.name, c.error and fault_of(c.error), c.error_from) for c in episode.calls]


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_session_with_its_sub_agents_and_its_fork(project):
    episodes, report = project
    assert set(report.formats.values()) == {"claude-code"}
    assert [name.partition("/")[2][:6] for name in episodes] == ["", "a3af2b", "a6931f", ""]
    assert outcomes(episodes[MAIN]) == [
        ("Read", "", "log"), ("Bash", "", "log"), ("Bash", "unknown", "log"), ("Read", "policy", "log"),
        ("Agent", "", "log"), ("Agent", "", "log"), ("Telescope", "policy", "log"), ("Edit", "", "log"),
        ("Edit", "policy", "log"), ("Bash", "", "log"),
    ]  # fmt: skip
    assert [says_unknown_tool(c.error) for c in episodes[MAIN].calls if c.error] == [
        False,
        False,
        True,
        False,
    ]
    assert all(call.result for call in episodes[MAIN].calls)
    counted = episodes[f"{MAIN}/a3af2b2b40598e58f"]
    assert outcomes(counted) == [("Bash", "policy", "log")]
    assert (counted.extra["agentType"], counted.extra["toolUseId"]) == ("general-purpose", "toolu_05b")
    assert report.num_malformed == 0
    assert not [note for note in report.notes if "no format" in note]  # the .meta.json beside them is read


def test_a_line_is_a_block_and_its_usage_the_whole_answers(project):
    main = project[0][MAIN]
    first = main.turns[1]
    assert (first.reasoning, first.content, len(first.calls)) == (
        "Look at the code first.", "I will read the code and list the folder.", 2,
    )  # fmt: skip
    answers = [turn for turn in main.turns if turn.role == "assistant"]
    assert (len(answers), {turn.tokens for turn in answers}, main.tokens) == (10, {40}, 400)
    assert (main.model, main.stop_reason) == ("claude-opus-4-8", "end_turn")
    assert main.calls[4].latency_s == pytest.approx(0.248)


def test_what_repeats_is_read_once(project):
    """A compaction's summary, and what a fork took over of its session."""
    episodes, report = project
    fork = next(one for name, one in episodes.items() if name.startswith("86e38a37"))
    assert [turn.content for turn in fork.turns] == ["thanks, say bye twice", "Bye."]
    notes = {note.partition(",")[0]: count for note, count in report.notes.items()}
    assert notes["compactions of a context"] == 1
    assert notes["messages that a fork of a session repeats (Claude Code)"] == 9
    assert notes["runs of sub-agents"] == 2
    texts = [turn.content for turn in episodes[MAIN].turns]
    assert "thanks, say bye" in texts
    assert "(cut)" not in texts


def test_time_outs_and_errors_of_the_api():
    (episode,), report = read_episodes([LOGS / "claude-errors.jsonl"])
    assert outcomes(episode) == [
        ("Bash", "unknown", "log"), ("Bash", "", "log"), ("Read", "policy", "log"), ("Bash", "tool", "log"),
        ("Bash", "policy", "log"), ("Write", "policy", "log"),
    ]  # fmt: skip
    assert episode.calls[3].error == "Command timed out after 1s"
    assert (episode.stop_reason, episode.turns[-1].calls[0].name) == ("error", "Write")
    assert (
        report.notes["messages that Claude Code wrote in the agent's name (errors of the API), left out"] == 1
    )


def test_the_stream_says_cost_and_how_it_ended():
    """In the stream an answer's usage is of its first token; the result's is of all."""
    (episode,), _ = read_episodes([LOGS / "claude-stream.jsonl"])
    (logged,), _ = read_episodes([LOGS / "claude-errors.jsonl"])
    assert outcomes(episode) == outcomes(logged)
    assert (episode.tokens, logged.tokens, episode.turns[1].tokens) == (160, 160, None)
    assert (episode.cost, episode.duration_s, episode.stop_reason) == (pytest.approx(0.0044), 2.77, "error")


def streamed(tokens, cost, in_process, **fields):
    """A result as Claude Code 2.1.197 writes it, with the tokens of its process so far."""
    usage = {"usage": {"output_tokens": tokens}, "modelUsage": {"m": {"outputTokens": in_process}}}
    ended = {"subtype": "success", "is_error": False, "stop_reason": "end_turn", "duration_ms": 500}
    return {"type": "result", "session_id": "s", "total_cost_usd": cost, **usage, **ended, **fields}


@pytest.mark.parametrize(
    ("second", "cost"),
    [
        (streamed(47, 0.00275, 90), 0.00275),  # of the same process: its cost is of both prompts
        (streamed(47, 0.0015, 47), 0.002725),  # of another, which resumed the session
    ],
)
def test_a_session_with_several_prompts_in_one_stream(tmp_path, second, cost):
    rows = [spoken("1", None, "user", "a"), streamed(43, 0.001225, 43), spoken("2", "1", "user", "b"), second]
    for row in rows:
        row["session_id"] = row.pop("sessionId", "s")
    (episode,), _ = read_episodes([write_lines(tmp_path / "a.jsonl", rows)])
    assert (episode.tokens, episode.duration_s, episode.stop_reason) == (90, 1.0, "end_turn")
    assert episode.cost == pytest.approx(cost)


def test_a_result_alone_says_what_to_print(tmp_path):
    """`claude -p --output-format json` prints how it ended, and nothing of what was done."""
    path = write_lines(tmp_path / "a.json", [streamed(4, 0.1, 4, result="Done.")])
    with pytest.raises(TraceError, match=r"no episode .*stream-json --verbose"):
        diagnose_traces([path])


def test_a_limit_of_turns(tmp_path):
    rows = lines(LOGS / "claude-stream.jsonl")
    rows[-1] |= {"subtype": "error_max_turns", "is_error": False}
    (episode,), _ = read_episodes([write_lines(tmp_path / "a.jsonl", rows)])
    assert episode.stop_reason == "max_turns"


def spoken(uuid, parent, role, content, **fields):
    message = {"role": role, "content": content, "id": f"m{uuid}", "stop_reason": "end_turn"}
    times = {"timestamp": "2026-11-23T16:00:00Z", "sessionId": "s", "isSidechain": False}
    return {"type": role, "uuid": uuid, "parentUuid": parent, "message": message, **times, **fields}


def use(name):
    return [{"type": "tool_use", "id": name, "name": "Bash", "input": {}}]


def answer(name):
    return [{"type": "tool_result", "tool_use_id": name, "content": name}]


def test_rewound_branches_are_left_out_and_parallel_results_are_not(tmp_path):
    """After the format: the user went back to the first answer; the way to the last message passes neither branch."""
    rows = [
        spoken("1", None, "user", "go"), spoken("2", "1", "assistant", use("a")),
        spoken("3", "2", "assistant", use("b")) | {"message": spoken("2", "1", "assistant", use("b"))["message"]},
        spoken("4", "2", "user", answer("a")), spoken("5", "3", "user", answer("b")),
        spoken("6", "5", "assistant", "wrong way"), spoken("7", "6", "user", "no"), spoken("8", "7", "assistant", use("c")),
        spoken("9", "5", "assistant", "right way"),
    ]  # fmt: skip
    (episode,), report = read_episodes([write_lines(tmp_path / "a.jsonl", rows)])
    assert [(call.id, call.result) for call in episode.calls] == [("a", "a"), ("b", "b")]
    assert [turn.content for turn in episode.turns] == ["go", None, "right way"]
    assert report.notes["messages of branches that the user rewound (Claude Code), left out"] == 3


def session(name, *rows):
    return [{**row, "sessionId": name} for row in rows]


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_a_session_copied_under_another_id_counts_once(tmp_path, names):
    """As older `--resume` and forks at the prompt copy it: the same uuids, and no line of the queue before them."""
    shared = [
        spoken("1", None, "user", "go"),
        spoken("2", "1", "assistant", use("a")),
        spoken("3", "2", "user", answer("a")),
    ]
    later = {"timestamp": "2026-11-23T17:00:00Z"}
    older, newer = names
    write_lines(tmp_path / f"{older}.jsonl", session(older, *shared, spoken("4", "3", "assistant", "done")))
    rows = [
        *shared,
        spoken("5", "3", "user", "on", **later),
        spoken("6", "5", "assistant", use("b"), **later),
    ]
    write_lines(tmp_path / f"{newer}.jsonl", session(newer, *rows))
    write_lines(tmp_path / "other.jsonl", session("other", spoken("9", None, "user", "else")))
    episodes, report = read_episodes([tmp_path])
    calls = {one.id: [call.id for call in one.calls] for one in episodes}
    assert calls == {older: ["a"], newer: ["b"], "other": []}
    assert report.notes["messages that a fork of a session repeats (Claude Code), left out"] == 3


def test_a_session_that_was_only_copied_so_far(tmp_path):
    rows = [spoken("1", None, "user", "go"), spoken("2", "1", "assistant", "ok")]
    for name in "ab":
        write_lines(tmp_path / f"{name}.jsonl", session(name, *rows))
    episodes, _ = read_episodes([tmp_path])
    assert [(one.id, len(one.turns)) for one in episodes] == [("a", 2)]


def test_sub_agents_within_the_file_of_older_versions(tmp_path):
    rows = [
        spoken("1", None, "user", "go"), spoken("2", "1", "assistant", use("a")),
        spoken("x1abcdefgh", None, "user", "count", isSidechain=True), spoken("x2", "x1abcdefgh", "assistant", use("b"), isSidechain=True),
        spoken("x3", "x2", "user", answer("b"), isSidechain=True), spoken("3", "2", "user", answer("a")),
    ]  # fmt: skip
    episodes, _ = read_episodes([write_lines(tmp_path / "a.jsonl", rows)])
    assert [(one.id, [call.result for call in one.calls]) for one in episodes] == [
        ("s", ["a"]), ("s/x1abcdef", ["b"]),
    ]  # fmt: skip


def test_a_result_that_looks_like_an_error_is_none(tmp_path):
    """Claude Code flags each failure, so a file that begins with `Error:` was read well."""
    result = [{"type": "tool_result", "tool_use_id": "a", "content": "Error: line 1 of a log"}]
    rows = [
        spoken("1", None, "user", "go"),
        spoken("2", "1", "assistant", use("a")),
        spoken("3", "2", "user", result),
    ]
    (episode,), _ = read_episodes([write_lines(tmp_path / "a.jsonl", rows)])
    assert (episode.calls[0].error, episode.calls[0].error_from) == ("", "log")


def test_the_user_ended_it(tmp_path):
    rows = [
        spoken("1", None, "user", "go"),
        spoken("2", "1", "user", "[Request interrupted by user for tool use]"),
    ]
    (episode,), _ = read_episodes([write_lines(tmp_path / "a.jsonl", rows)])
    assert episode.stop_reason == "interrupted"


def test_a_log_that_is_being_written_or_damaged(tmp_path):
    text = SESSION.read_text(encoding="utf-8").splitlines()[:31]
    text[10] = text[10][:50]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join([*text, text[20][:80]]), encoding="utf-8")
    (episode,), report = read_episodes([path])
    assert (len(episode.calls), report.num_malformed) == (10, 2)
    assert [(one.line, one.reason.startswith("cut off")) for one in report.problems] == [
        (11, False),
        (32, True),
    ]
