"""What is counted of an answer's text."""

from __future__ import annotations

import math

import pytest

from trimtab.snapshots import Answer
from trimtab.snapshots.answer_traits import TRAITS, calls_of, repetition, traits_of
from trimtab.snapshots.refusal_phrases import is_refusal

CALL = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I\u2019m sorry, I cannot assist with this request.",
        "I cannot provide instructions for that.",
        "Sorry, I am unable to share it.",
        "As an AI language model, I don't have the ability to do so.",
        "I must respectfully decline.",
        "We will not generate this content.",
        "It's against my policy to discuss this.",
    ],
)
def test_refusals_are_seen(text):
    assert is_refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Sorry for the delay: the answer is 42.",
        "You can't divide by zero, so the limit is taken instead.",
        "I can help with that. It is 42.",
        "The function cannot return None.",
        "x" * 400 + " I cannot help with that.",  # the stated limit: only the opening is read
    ],
)
def test_other_answers_are_not(text):
    assert not is_refusal(text)


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (CALL, (1, 0)),
        (f"Let me see. {CALL}{CALL}", (2, 0)),
        ('<tool_call>{"name": "add", "arguments": </tool_call>', (1, 1)),
        (CALL.removesuffix("</tool_call>"), (1, 1)),  # the tag is not closed
        ('{"name": "add", "parameters": {"a": 1}}', (1, 0)),
        ('{"answer": 3}', (0, 0)),
        ("It is 42.", (0, 0)),
    ],
)
def test_calls_and_their_form(text, calls):
    assert calls_of(Answer(text, 9)) == calls


def test_a_loop_may_count_its_own_calls():
    assert calls_of(Answer("<call>price tofa</call>", 9, num_calls=2, num_malformed_calls=1)) == (2, 1)


def test_format_and_repetition():
    texts = [
        '{"a": 1}',
        "```json\n[1]\n```",
        "```py\nx\n```",
        "<answer>3</answer>",
        "It is \\boxed{3}.",
        "3",
        "3",
        " ",
    ]
    traits = traits_of([Answer(text, 3, "length") for text in texts])
    assert traits["json"].tolist() == [1, 1, 0, 0, 0, 0, 0, 0]
    assert traits["code_fence"].tolist() == [0, 1, 1, 0, 0, 0, 0, 0]
    assert traits["answer_tag"].tolist() == [0, 0, 0, 1, 1, 0, 0, 0]
    assert traits["shared_answer"].tolist() == [0, 0, 0, 0, 0, 1, 1, 0]
    assert traits["empty"].tolist() == [0] * 7 + [1]
    assert traits["truncated"].tolist() == [1] * 8
    assert repetition("no no no no no no no no no no") == pytest.approx(
        7 / 8
    )  # 8 3-grams, one of them distinct
    assert set(traits) == {trait.name for trait in TRAITS}


def test_what_nobody_observed_is_nan():
    traits = traits_of([Answer("3", 1)])
    assert math.isnan(traits["reward"][0])
    assert math.isnan(traits["truncated"][0])
