"""What a chat template made of turns, with and without its special tokens, back to the turns."""

from __future__ import annotations

import json

import pytest

from tests.traces.make import write_lines
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.export.samples import messages_of, sample_of
from trimtab.traces.messages.chat_template_text import parts_of_completion, prompt_turns
from trimtab.traces.read import read_episodes

TOOL = {"type": "function", "function": {"name": "calc", "description": "d", "parameters": {"type": "object", "properties": {}}}}  # fmt: skip
HEAD = """

# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tool}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""
"""What Qwen2.5's and Qwen3's templates append to the system prompt, to the letter."""
PROMPT = (
    f"system\nYou are Qwen.{HEAD.format(tool=json.dumps(TOOL))}\nuser\nWhat is 2+2?\nIn words.\nassistant\n"
)
OUTPUT = 'Let me compute.\n<tool_call>\n{"name": "calc", "arguments": {"e": "2+2"}}\n</tool_call>\nuser\n<tool_response>\n4\n</tool_response>\nassistant\nFour.'


def test_a_dump_of_verl_without_special_tokens(tmp_path):
    row = {"input": PROMPT, "output": OUTPUT, "gts": "4", "score": 1.0, "step": 1}
    (found,), report = read_episodes([write_lines(tmp_path / "1.jsonl", [row])])
    assert [(t.role, t.content) for t in found.turns] == [
        ("system", "You are Qwen."),
        ("user", "What is 2+2?\nIn words."),
        ("assistant", "Let me compute."),
        ("assistant", "Four."),
    ]
    assert [(c.name, c.arguments, c.result) for c in found.calls] == [("calc", {"e": "2+2"}, "4")]
    assert found.tools == [TOOL]
    assert report.notes == {"texts split into turns at role words that a chat template left": 2}
    assert [m["role"] for m in messages_of(found)] == ["system", "user", "assistant", "tool", "assistant"]


def test_special_tokens_and_what_the_prompt_opened(tmp_path):
    prompt = "<|im_start|>system\nBe nice.<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n"
    row = {"step": 1, "prompt": prompt, "completion": "hm</think>a<|im_end|>", "r": 1.0, "advantage": 0.0}
    (found,), report = read_episodes([write_lines(tmp_path / "a.jsonl", [row])])
    assert [(t.role, t.content) for t in found.turns] == [
        ("system", "Be nice."),
        ("user", "q"),
        ("assistant", "<think>\nhm</think>a"),
    ]
    assert not report.notes


def test_turns_of_a_user_after_the_prompt(tmp_path):
    row = {"input": "user\nBook.\nassistant\n", "output": "Where to?\nuser\nRome.\nassistant\nDone.", "score": 0, "step": 1}  # fmt: skip
    (found,), _ = read_episodes([write_lines(tmp_path / "1.jsonl", [row])])
    assert [(t.role, t.content) for t in found.turns] == [
        ("user", "Book."), ("assistant", "Where to?"), ("user", "Rome."), ("assistant", "Done."),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text", ["What is 2+2?", "", "The words are\nuser\nand\nassistant\nhere.", "Be a good assistant"]
)
def test_plain_prompts_stay_whole(text):
    turns, tools, opened = prompt_turns(text, ReadReport())
    assert [(t.role, t.content) for t in turns] == [("user", text)]
    assert (tools, opened) == (None, "")


def test_gemmas_words():
    turns, _, _ = prompt_turns("user\nWhich model\nis it?\nmodel\n", ReadReport())
    assert [(t.role, t.content) for t in turns] == [("user", "Which model\nis it?")]


def test_a_template_that_cannot_be_split_is_no_training_text(tmp_path):
    glued = "system\n\nBe nice.user\n\nWhat is 2+2?assistant\n\n"  # Llama 3's without its special tokens
    rows = [{"input": glued, "output": "4", "score": 1.0, "step": 1}]
    (found,), report = read_episodes([write_lines(tmp_path / "1.jsonl", rows)])
    assert found.turns[0].role == "prompt"
    assert sum(report.notes.values()) == 1
    assert isinstance(sample_of(found, 1.0), str)


@pytest.mark.parametrize(
    ("text", "roles"),
    [
        ("The rows are\nuser\nalice", ["assistant"]),  # nobody answers: the agent's own line
        ("a\ntool\nr\nassistant\nb", ["assistant", "tool", "assistant"]),
        ("a\nassistant\nb", ["assistant"]),
        (
            "a<|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\nc",
            ["assistant", "user", "assistant"],
        ),
    ],
)
def test_parts_of_completions(text, roles):
    assert [role for role, _ in parts_of_completion(text, ReadReport())] == roles


def test_role_words_that_an_answer_lists_are_its_own(tmp_path):
    listed = "The roles are:\nsystem\nuser\nassistant\nDone"
    row = {"input": "user\nList roles?\nassistant\n", "output": listed, "gts": "x", "score": 1.0, "step": 1}
    (found,), _ = read_episodes([write_lines(tmp_path / "1.jsonl", [row])])
    assert [(t.role, t.content) for t in found.turns] == [("user", "List roles?"), ("assistant", listed)]
    parts = parts_of_completion("a\nuser\nAnd now?\nassistant\nb", ReadReport())
    assert parts == [("assistant", "a"), ("user", "And now?"), ("assistant", "b")]
