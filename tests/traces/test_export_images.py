"""Attempts after the same words and other images are attempts at other tasks; what a trainer gets has no digest in it."""

from __future__ import annotations

import base64
import json

import pytest

from tests.report.test_trace_diagnosis import run
from tests.traces.make import chat, write_lines
from tests.traces.test_export import attempt, log
from trimtab.errors import TraceError
from trimtab.traces.export import export
from trimtab.traces.read import read_episodes
from trimtab.traces.table.build import tabulate

DATA = [base64.b64encode(bytes([i]) * 3000).decode() for i in range(3)]
IMAGES = {
    "openai": lambda i: {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA[i]}"}},
    "url": lambda i: {"type": "image_url", "image_url": {"url": f"https://example.org/{i}.png"}},
    "responses": lambda i: {"type": "input_image", "image_url": f"https://example.org/{i}.png"},
    "anthropic": lambda i: {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA[i]}},
    "inspect": lambda i: {"type": "image", "image": f"attachment://{i}"},
    "genai": lambda i: {"type": "blob", "mime_type": "image/png", "modality": "image", "content": DATA[i]},
}  # fmt: skip


def _seen(image, trial, reward, text="What is this?", **more):
    row = attempt(1, trial, reward)
    del row["task_id"]
    row["messages"][0]["content"] = [{"type": "text", "text": text}, *([image] if image else [])]
    return {**row, **more}


@pytest.mark.parametrize("kind", IMAGES)
def test_other_images_are_other_prompts_and_the_same_image_is_the_same(tmp_path, kind):
    image = IMAGES[kind]
    rows = [_seen(image(0), 0, 1.0), _seen(image(1), 1, 0.0)]
    with pytest.raises(TraceError, match="2 x episode in no pair: no other attempt"):
        export(log(tmp_path, rows), "dpo", tmp_path / "o.jsonl")
    again = {**image(0), "cache_control": {"type": "ephemeral"}, "id": "part_7"}
    made = export(log(tmp_path, [*rows, _seen(again, 2, 0.0)]), "dpo", tmp_path / "o.jsonl")
    assert [(row["chosen_episode"], row["rejected_episode"]) for row in made.rows] == [("1/0", "1/2")]
    shown = f"What is this?[{image(0)['type']}]"
    assert made.rows[0]["prompt"] == [{"role": "user", "content": shown}]
    assert made.card["warnings"] == [
        "1 of 1 rows lack an image, or another part that is not text, which the log has: they say [image_url], or its kind, where it stood"
    ]
    written = (tmp_path / "o.jsonl").read_text()
    assert "blake2b" not in written
    assert DATA[0] not in written
    grpo = export(log(tmp_path, [*rows, _seen(again, 2, 0.0)]), "grpo", tmp_path / "g.jsonl").rows
    assert [(row["attempts"], row["solved"]) for row in grpo] == [(2, 1), (1, 0)]


def test_near_duplicates_are_of_one_image(tmp_path):
    image = IMAGES["url"]
    rows = [_seen(image(0), 0, 1.0), _seen(image(1), 0, 1.0, id="b"), _seen(image(0), 0, 1.0, id="c")]
    rows[2]["messages"][2]["content"] = "other"
    made = export(log(tmp_path, rows), "sft", tmp_path / "o.jsonl")
    assert [row["episode"] for row in made.rows] == ["1/0", "b"]


@pytest.mark.parametrize("kind", ["sft", "dpo", "kto", "grpo", "steps"])
@pytest.mark.parametrize("own", [False, True])
def test_no_kind_of_row_has_a_digest_not_even_by_way_of_our_own_format(tmp_path, kind, own):
    image = IMAGES["anthropic"]
    rows = [{**_seen(image(0), i, float(i % 2)), "task_id": "t"} for i in range(2)]
    for i, row in enumerate(rows):
        row["messages"][2]["content"] = [{"type": "text", "text": "shot "}, image(i + 1)]
    (path,) = log(tmp_path, rows)
    if own:
        assert run("convert", path, "-o", tmp_path / "own.jsonl")[0] == 0
        path = tmp_path / "own.jsonl"
    made = export([path], kind, tmp_path / "o.jsonl")
    text = (tmp_path / "o.jsonl").read_text()
    assert "blake2b" not in text
    assert "What is this?[image]" in text
    if kind != "grpo":
        assert "shot [image]" in text
    assert made.card["warnings"][-1].startswith(f"{len(made.rows)} of {len(made.rows)} rows lack an image")


def test_words_that_look_alike_stay(tmp_path):
    said = "[master 0123456789ab] fix [image_url] [image blake2b:xyz] blake2b:0123456789ab"
    rows = [_seen(None, 0, 1.0, text=said)]
    made = export(log(tmp_path, rows), "sft", tmp_path / "o.jsonl")
    assert made.rows[0]["messages"][0]["content"] == said
    assert made.card["warnings"] == []


def test_screenshots_that_differ_are_no_repeated_call(tmp_path):
    """Also the results that stand in Anthropic's blocks, whose images are counted."""
    image = IMAGES["anthropic"]

    def looked(*images):
        messages = [{"role": "user", "content": "go"}]
        for i, shot in enumerate(images):
            use = {"type": "tool_use", "id": f"t{i}", "name": "screenshot", "input": {}}
            result = {"type": "tool_result", "tool_use_id": f"t{i}", "content": [image(shot)]}
            messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
        return {"id": str(images), "messages": [*messages, {"role": "assistant", "content": "done"}]}

    path = write_lines(tmp_path / "log.jsonl", [looked(0, 1, 2), looked(0, 0, 0)])
    episodes, report = read_episodes([path])
    assert report.notes["parts of messages that are no text, written as [kind]"] == 6
    assert [len({call.result for call in episode.calls}) for episode in episodes] == [3, 1]
    assert tabulate(episodes).counts["repeats"].tolist() == [0, 2]


def test_a_second_image_under_the_same_words_is_a_new_message_of_a_conversation(tmp_path):
    """A model's span repeats what was said: the same words with another image were not said before."""
    image = IMAGES["openai"]
    first = {"role": "user", "content": [{"type": "text", "text": "This?"}, image(0)]}
    second = {"role": "user", "content": [{"type": "text", "text": "This?"}, image(1)]}

    def span(number, asked, answer):
        keys = {"gen_ai.operation.name": "chat", "gen_ai.conversation.id": "c", "input.value": json.dumps({"messages": asked}),
                "output.value": json.dumps({"choices": [{"message": {"role": "assistant", "content": answer}}]})}  # fmt: skip
        return {"traceId": "t", "spanId": str(number), "name": "chat", "startTimeUnixNano": str(10**18 + number), "endTimeUnixNano": str(10**18 + number + 1),
                "attributes": [{"key": k, "value": {"stringValue": v}} for k, v in keys.items()]}  # fmt: skip

    spans = [span(1, [first], "A cat."), span(2, [second], "A dog.")]
    path = write_lines(tmp_path / "spans.jsonl", [{"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}])
    (episode,), _ = read_episodes([path])
    assert [turn.role for turn in episode.turns] == ["user", "assistant", "user", "assistant"]


def test_prompts_are_of_what_is_attempted_and_one_that_several_tasks_share_is_warned_of(tmp_path):
    """One rule for pairs and prompts: after a greeting, the task is what the user says next."""
    rows = []
    for trial, asked in enumerate(("Cancel it.", "Cancel it.", "Refund it.")):
        messages = chat(arguments=json.dumps({"q": str(trial)}))
        head = [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hello, how can I help?"},
        ]
        messages[0]["content"] = asked
        rows.append({"id": str(trial), "reward": float(trial == 0), "messages": [*head, *messages]})
    made = export(log(tmp_path, rows), "grpo", tmp_path / "o.jsonl")
    assert [(row["attempts"], row["solved"]) for row in made.rows] == [(2, 1), (1, 0)]
    assert made.rows[0]["prompt"] == made.rows[1]["prompt"] == [{"role": "user", "content": "Hello"}]
    assert made.card["balance"]["rows whose prompt another row has too"] == 2
    (warning,) = [w for w in made.card["warnings"] if "prompt" in w]
    assert warning.startswith("2 rows have the prompt of another row and are another task")
