"""Chats of several agents. `multi_agent/ag2-*.json` were made by ag2 0.11.5, `agentchat.json` and `magentic-one.json` by
autogen-agentchat 0.7.5 (`TaskResult.model_dump`), each with scripted models; a prompt of Magentic-One's was cut."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.traces.make import write_lines
from trimtab.traces.errors.attribution import fault_of
from trimtab.traces.read import read_episodes

LOGS = Path(__file__).parent / "fixtures" / "multi_agent"


def read(path, **options):
    (episode,), report = read_episodes([path], **options)
    return episode, report


def calls(episode):
    return [(c.name, c.error and fault_of(c.error), c.error_from) for c in episode.calls]


def speakers(episode):
    return [(turn.role, turn.name) for turn in episode.turns]


def test_ag2_keeps_a_chat_from_one_side():
    """Its roles are those of the side: here the agent's are `user`, and the user's `assistant`."""
    episode, report = read(LOGS / "ag2-chat.json")
    assert report.formats.popitem()[1] == "autogen"
    assert calls(episode) == [
        ("capital", "", ""), ("capital", "unknown", "text"), ("telescope", "policy", "text"),
        ("code", "unknown", "log"), ("code", "", "log"),
    ]  # fmt: skip
    assert [call.result for call in episode.calls[:2]] == [
        "Paris",
        "Error: 'Narnia'",
    ]  # parallel, in one message
    assert episode.calls[3].arguments == {"code": "print(1/0)"}
    assert episode.calls[3].error.startswith("Traceback")
    assert speakers(episode) == [
        ("user", "user_proxy"),
        *[("assistant", None)] * 2,
        *[("assistant", "clerk")] * 3,
    ]
    assert episode.cost == 0.0


def test_a_group_of_ag2_is_all_users():
    episode, report = read(LOGS / "ag2-group.json")
    assert report.formats.popitem()[1] == "autogen-messages"
    assert speakers(episode) == [
        ("user", "user_proxy"),
        ("assistant", "Planner"),
        *[("assistant", "Coder")] * 2,
    ]
    assert calls(episode) == [("code", "", "log")]
    assert episode.calls[0].result == "exitcode: 0 (execution succeeded)\nCode output: 4\n"


def test_agentchat():
    episode, _ = read(LOGS / "agentchat.json")
    assert calls(episode) == [
        ("capital", "", "log"),
        ("capital", "unknown", "log"),
        ("telescope", "policy", "log"),
    ]
    assert [turn.reasoning for turn in episode.turns] == [None, "Look both up.", "Look both up.", None]
    assert (episode.tokens, episode.stop_reason) == (17, "Text 'TERMINATE' mentioned")


def test_magentic_one():
    """The terminal runs what the coder wrote, two messages later."""
    episode, _ = read(LOGS / "magentic-one.json")
    assert calls(episode) == [("code", "unknown", "log")]
    assert episode.turns[3].calls[0].arguments == {"code": "print(1/0)"}
    assert [name for _, name in speakers(episode)][:4] == ["user", *["MagenticOneOrchestrator"] * 2, "coder"]


def test_agentchats_messages_line_by_line(tmp_path):
    whole = json.loads((LOGS / "agentchat.json").read_text(encoding="utf-8"))
    episode, report = read(write_lines(tmp_path / "a.jsonl", whole["messages"]))
    assert report.formats.popitem()[1] == "autogen-messages"
    assert episode.turns == read(LOGS / "agentchat.json")[0].turns
    limited = {**whole, "stop_reason": "Maximum number of turns 4 reached."}
    assert read(write_lines(tmp_path / "b.jsonl", [limited]))[0].stop_reason == "max_turns"


def test_code_that_ran_well_counts_too(tmp_path):
    """AgentChat 0.7.5's CodeExecutorAgent reports a failure, and of code that ran well prints the output alone."""

    def chat(runner):
        return [
            agentchat("TextMessage", source="user", content="divide"),
            agentchat("TextMessage", content="```python\nprint(1/0)\n```"),
            agentchat("TextMessage", source=runner, content="The script ran, then exited with an error (POSIX exit code: 1)\nIts output was:\nZeroDivisionError"),
            agentchat("TextMessage", content="```sh\necho hi\n```"), agentchat("TextMessage", source=runner, content="hi\n"),
            agentchat("TextMessage", source=runner, content="No code blocks found in the thread."), agentchat("TextMessage", content="fine"),
        ]  # fmt: skip

    for runner, first in (("Bob", 1), ("code_executor", 1), ("ComputerTerminal", 3)):
        rows = chat(runner)
        episode, _ = read(write_lines(tmp_path / "a.jsonl", [rows[0], *rows[first:]]))
        results = [("print(1/0)", "ZeroDivisionError"), ("echo hi", "")][first // 2 :]
        assert [(call.arguments["code"], call.error) for call in episode.calls] == results
        assert [turn.content for turn in episode.turns][-2:] == [
            "No code blocks found in the thread.",
            "fine",
        ]


def test_who_ran_code_may_speak_too(tmp_path):
    """AG2's reports each run, so other words of the same speaker are none."""
    chat = [
        {"role": "assistant", "name": "code_executor", "content": "The task."}, {"role": "user", "name": "coder", "content": "```sh\nls\n```"},
        {"role": "assistant", "name": "code_executor", "content": "exitcode: 0 (execution succeeded)\nCode output: a"},
        {"role": "user", "name": "coder", "content": "```sh\nrm x\n```"}, {"role": "assistant", "name": "code_executor", "content": "Stop."},
    ]  # fmt: skip
    episode, _ = read(write_lines(tmp_path / "a.jsonl", [{"chat_history": chat}]))
    assert [call.arguments["code"] for call in episode.calls] == ["ls"]
    assert episode.turns[-1].content == "Stop."


def test_a_handoff_repeats_the_result_of_its_call(tmp_path):
    """As autogen-agentchat 0.7.5 writes a Swarm."""
    words = "Transferred to bob, adopting the role of bob immediately."
    rows = [
        agentchat("TextMessage", source="user", content="go"),
        agentchat("ToolCallRequestEvent", content=[{"id": "h", "name": "transfer_to_bob", "arguments": "{}"}]),
        agentchat("ToolCallExecutionEvent", content=[{"call_id": "h", "name": "transfer_to_bob", "content": words, "is_error": False}]),
        agentchat("HandoffMessage", content=words, target="bob", context=[]),
        agentchat("HandoffMessage", content="Over to you.", target="bob", context=[]),
    ]  # fmt: skip
    episode, report = read(write_lines(tmp_path / "a.jsonl", rows))
    assert [(turn.content, len(turn.calls)) for turn in episode.turns] == [
        ("go", 0),
        (None, 1),
        ("Over to you.", 0),
    ]
    assert report.notes["messages that repeat what tools gave (AgentChat), left out"] == 1


def test_what_run_stream_yields_ends_with_the_result(tmp_path):
    whole = json.loads((LOGS / "agentchat.json").read_text(encoding="utf-8"))
    episode, report = read(write_lines(tmp_path / "a.jsonl", [*whole["messages"], whole]))
    expected = read(LOGS / "agentchat.json")[0]
    assert (episode.turns, episode.stop_reason) == (expected.turns, "Text 'TERMINATE' mentioned")
    assert report.num_malformed == 0


def agentchat(kind, **fields):
    return {
        "source": "coder",
        "type": kind,
        "models_usage": None,
        "created_at": "2026-11-23T17:00:00Z",
        **fields,
    }


def test_code_that_an_agent_runs_itself(tmp_path):
    """After `autogen_agentchat.messages` 0.7.5: what was printed comes again as the agent's answer."""
    rows = [
        agentchat("TextMessage", source="user", content="2/0?"),
        agentchat("CodeGenerationEvent", content="Run.", retry_attempt=0, code_blocks=[{"code": "2/0", "language": "python"}]),
        agentchat("CodeExecutionEvent", retry_attempt=0, result={"exit_code": 1, "output": "ZeroDivisionError"}),
        agentchat("TextMessage", content="ZeroDivisionError"),
        agentchat("ToolCallSummaryMessage", content="x", tool_calls=[], results=[]),
        agentchat("TextMessage", content="It has none."),
    ]  # fmt: skip
    episode, report = read(write_lines(tmp_path / "a.jsonl", rows))
    assert [(c.name, c.arguments, c.error) for c in episode.calls] == [
        ("code", {"code": "2/0"}, "ZeroDivisionError")
    ]
    assert [turn.content for turn in episode.turns] == ["2/0?", "Run.", "It has none."]
    assert report.notes["messages that repeat what tools gave (AgentChat), left out"] == 2


HISTORY = [
    {"role": "human", "content": "2+2?"}, {"role": "Orchestrator (thought)", "content": "Ask."},
    {"role": "Assistant", "content": "```python\nprint(2+2)\n```"}, {"role": "Orchestrator (-> Terminal)", "content": "Run."},
    {"role": "ComputerTerminal", "content": "The script ran, then exited with Unix exit code: 0\nIts output was:\n4"},
]  # fmt: skip


def test_a_history_whose_roles_are_names(tmp_path):
    """After the form in which failures of Magentic-One are published: a row with `history` and who was at fault."""
    row = {
        "history": HISTORY,
        "question_ID": "q7",
        "is_correct": False,
        "mistake_agent": "Assistant",
        "mistake_step": "2",
    }
    episode, _ = read(write_lines(tmp_path / "a.jsonl", [row]))
    assert speakers(episode) == [
        ("user", "human"), ("assistant", "Orchestrator"), ("assistant", "Assistant"), ("assistant", "Orchestrator"),
    ]  # fmt: skip
    assert [call.error for call in episode.calls] == [""]
    assert (episode.task, episode.success, episode.extra["mistake_step"]) == ("q7", False, "2")


@pytest.mark.parametrize("mapped", [True, False])
def test_names_as_roles_in_any_chat(tmp_path, mapped):
    chat = [
        {"role": "user", "content": "q"},
        {"role": "Planner", "content": "a"},
        {"role": "Critic", "content": "b"},
    ]
    row = {"run": {"log": chat}} if mapped else {"messages": chat}
    mapping = {"messages": "run.log"} if mapped else None
    episode, report = read(write_lines(tmp_path / "a.jsonl", [row]), mapping=mapping)
    assert speakers(episode) == [("user", None), ("assistant", "Planner"), ("assistant", "Critic")]
    assert sum(count for note, count in report.notes.items() if "speakers' names" in note) == 1
    beside = [{**chat[1], "role": "assistant"}, chat[2]]  # a role of ours: the other is no agent's
    row = {"run": {"log": beside}} if mapped else {"messages": beside}
    assert speakers(read(write_lines(tmp_path / "b.jsonl", [row]), mapping=mapping)[0])[1] == ("Critic", None)


def test_the_first_message_is_the_task_and_people_stay_people(tmp_path):
    chat = [
        {"role": "assistant", "name": "Excel_Expert", "content": "The task."}, {"role": "user", "name": "Excel_Expert", "content": "```sh\nls\n```"},
        {"role": "user", "name": "terminal", "content": "exitcode: 0 (execution succeeded)\nCode output: a"},
        {"role": "user", "name": "terminal", "content": "exitcode: 0 (execution succeeded)\nCode output: b"},
        {"role": "assistant", "name": "user_proxy", "content": "Go on."},
    ]  # fmt: skip
    episode, _ = read(write_lines(tmp_path / "a.jsonl", [{"chat_history": chat}]))
    assert speakers(episode) == [
        ("user", "Excel_Expert"), ("assistant", "Excel_Expert"), ("assistant", "terminal"), ("user", "user_proxy"),
    ]  # fmt: skip
    assert [call.result[-1] for call in episode.calls] == ["a"]  # what was run once gives one result
    names = [{"role": "Planner", "content": "The task."}, {"role": "Coder", "content": "Done."}]
    episode, _ = read(write_lines(tmp_path / "b.jsonl", [{"messages": names}]))
    assert speakers(episode) == [("user", "Planner"), ("assistant", "Coder")]


CALL = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
CHAT = [
    {"role": "system", "content": "Be nice."}, {"role": "user", "content": "hi", "name": "alice"},
    {"role": "assistant", "content": None, "tool_calls": CALL},
    {"role": "tool", "tool_call_id": "a", "name": "f", "content": "Error: boom"}, {"role": "assistant", "content": "Sorry."},
]  # fmt: skip


@pytest.mark.parametrize("named", [True, False])
def test_openais_messages_one_a_record(tmp_path, named):
    """Whoever saves `messages` as they are; a name of the user's makes it no chat of AG2's."""
    rows = CHAT if named else [{key: row[key] for key in row if key != "name"} for row in CHAT]
    episode, report = read(write_lines(tmp_path / "a.jsonl", rows))
    assert report.num_malformed == 0
    assert calls(episode) == [("f", "unknown", "text")]
    assert [turn.role for turn in episode.turns] == ["system", "user", "assistant", "assistant"]
    (tmp_path / "b.json").write_text(json.dumps(rows), encoding="utf-8")
    assert read(tmp_path / "b.json")[0].turns == episode.turns


@pytest.mark.parametrize("name", ["bob", None])
def test_a_table_of_messages_is_cut_into_its_conversations(tmp_path, name):
    rows = [
        {"conversation_id": i % 3, "role": ("user", "assistant")[i // 3 % 2], "content": f"m{i}"} | ({"name": name} if name else {})
        for i in range(12)
    ]  # fmt: skip
    episodes, _ = read_episodes([write_lines(tmp_path / "a.jsonl", rows)])
    assert [one.id for one in episodes] == ["0", "1", "2"]
    assert [turn.content for turn in episodes[1].turns] == ["m1", "m4", "m7", "m10"]


def test_what_was_said_before_is_not_the_chat(tmp_path):
    """A record may have both: `messages` is the episode, `chat_history` what its prompt was made of."""
    row = {"chat_history": [{"role": "user", "content": "earlier"}], "messages": CHAT}
    episode, report = read(write_lines(tmp_path / "a.jsonl", [row]))
    assert report.formats.popitem()[1] == "messages"
    assert calls(episode) == [("f", "unknown", "text")]


def test_an_agent_that_speaks_first_in_a_history(tmp_path):
    history = [{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "hi"}]
    episode, _ = read(write_lines(tmp_path / "a.jsonl", [{"history": history}]))
    assert [turn.role for turn in episode.turns] == ["assistant", "user"]
