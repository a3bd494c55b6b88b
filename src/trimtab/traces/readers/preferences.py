"""Rows of preference sets, as DPO is trained on: a prompt with a chosen and a rejected answer, which are two
attempts at it.

A preference says which answer is better, not that one solved its task: neither has an outcome. Scores of each
side are rewards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

from trimtab.traces.core.coerce import as_label, as_number, as_object, as_text, first_of
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.messages.responses_api import is_message
from trimtab.typing import Json

SIDES = ("chosen", "rejected")
_TURNS = ("messages", "conversations", "conversation")
_OTHERS = ("system", "developer", "user", "human")
REWARD, SUCCESS = ("reward", "score"), ("success", "resolved", "passed", "is_success")
"""What a record may call each."""
_READ = "rows of preferences, read as two episodes: chosen and rejected"
_ONE = "rows of preferences with one side only, read as one episode"
_AGAINST = "rows of preferences whose scores put the rejected side above the chosen one, scores left out"
_WHOSE = "outcomes of rows of preferences, which do not say of which side, left out"
_SPEAKERS = {"Human": "user", "Assistant": "assistant"}
_SPOKEN = re.compile(r"(?:\A\s*|\r?\n\r?\n)(Human|Assistant):[^\S\r\n]?")
_DIALOGUE = re.compile(r"\s*Human:.*?\n\r?\nAssistant:", re.S)


class Side(NamedTuple):
    """`name`: chosen or rejected; `fields`: what is said of it; `messages`: with those of the prompt;
    `group`: a name of what both are attempts at, where the row says no task."""

    name: str
    fields: dict[str, Any]
    messages: list[Any]
    group: str | None


def is_chat(value: Any) -> bool:
    """Is it a list of messages?"""
    return isinstance(value, list) and bool(value) and is_message(value[0])


def is_answer(value: Any) -> bool:
    """Is it a list of messages, or one message, as LLaMA-Factory's preferences have on each side?"""
    one = isinstance(value, dict) and first_of(value, "content", "value", "parts", "tool_calls") is not None
    return is_chat([value] if one else value)


def prompt_of(value: Any) -> list[Any]:
    """Messages as they are; text as the user's, or as the turns that it spells out as Anthropic's hh-rlhf
    does; none of nothing.

    >>> prompt_of("Where?"), prompt_of(None)
    ([{'role': 'user', 'content': 'Where?'}], [])
    >>> prompt_of("\\n\\nHuman: Where?\\n\\nAssistant:")
    [{'role': 'user', 'content': 'Where?'}]
    """
    if not is_dialogue(value):
        return _messages(value, "user")
    *turns, last = hh_rlhf_turns(value)
    return [*turns, last] if last["content"].strip() else turns


def answer_of(value: Any) -> list[Any]:
    """Messages as they are; text as the agent's; none of nothing.

    >>> answer_of("There."), answer_of(None)
    ([{'role': 'assistant', 'content': 'There.'}], [])
    """
    return _messages(value, "assistant")


def _messages(value: Any, role: str) -> list[Any]:
    if isinstance(value, list):
        return value
    if is_answer(value):
        return [value]
    content = value if isinstance(value, dict) else as_text(value)
    return [] if value is None else [{"role": role, "content": content}]


def _side(value: Any, prompt: list[Any]) -> list[Any]:
    """An answer; the turns that its text spells out only where these begin with the prompt: what an agent
    makes a `Human:` say is its own."""
    turns = hh_rlhf_turns(value) if is_dialogue(value) else []
    return turns if turns and turns[: len(prompt)] == prompt else answer_of(value)


def is_preference(value: Json) -> bool:
    """Has it messages as `chosen` or `rejected`?

    Text is an answer only in both, and where the row holds no conversation of its own.

    >>> (is_preference({"chosen": [{"role": "assistant", "content": "a"}]}), is_preference({"chosen": "a",
    ...     "rejected": "b"}))
    (True, True)
    >>> is_preference({"messages": [], "chosen": True}), is_preference({"prompt": "q", "chosen": "a"})
    (False, False)
    """
    if any(is_answer(value.get(name)) for name in SIDES):
        return True
    own = first_of(value, *_TURNS, "completion")
    return own is None and all(isinstance(value.get(name), str) for name in SIDES)


def sides_of(value: Json, source: str, report: ReadReport) -> Iterator[Side]:
    """The chosen and the rejected attempt of a row, counted in the report.

    The id is the attempt's own (`chosen_episode`), else the row's, else its index in the log, and the side:
    an attempt that our export has in many pairs is known again.
    """
    prompt = _prompt_of_row(value)
    answers = {name: _side(value[name], prompt) for name in SIDES if value.get(name) not in (None, [])}
    whole = {name: _whole(prompt, answer) for name, answer in answers.items()}
    report.note(_READ if len(answers) == 2 else _ONE)
    if any(value.get(name) is not None for name in (*REWARD, *SUCCESS)):
        report.note(_WHOSE)
    rest = {name: one for name, one in value.items() if name not in (*REWARD, *SUCCESS)}
    scores = {name: first_of(value, f"score_{name}", f"{name}_score") for name in SIDES}
    chosen, rejected = map(as_number, scores.values())
    # which of the two is meant, nobody can tell
    if chosen is not None and rejected is not None and chosen < rejected:
        scores = dict.fromkeys(SIDES)
        report.note(_AGAINST)
    row = as_label(first_of(value, "id", "episode_id", "uuid", "example_id", "session_id"))
    group = _prompt_digest(list(whole.values())) or row or source
    for name, messages in whole.items():
        base = as_label(value.get(f"{name}_episode")) or row or source
        model = first_of(value, f"{name}_model", "model")
        fields = {**rest, "id": f"{base}/{name}", "reward": scores[name], "model": model}
        yield Side(name, fields, messages, group)


def _prompt_of_row(value: Json) -> list[Any]:
    """The prompt; where there is none the row's conversation, without the answer if it ends with
    one of them."""
    conversation = first_of(value, *_TURNS)
    if value.get("prompt") is not None or not is_chat(conversation):
        return prompt_of(value.get("prompt"))
    for answer in (answer_of(value.get(name)) for name in SIDES):
        if answer and conversation[-len(answer) :] == answer:
            return list(conversation[: -len(answer)])
    return list(conversation)


def _whole(prompt: list[Any], answer: list[Any]) -> list[Any]:
    """The prompt and the answer; the answer alone where it is a conversation that repeats the prompt."""
    first = as_object(answer[0] if answer else None)
    texts = [_content(message) for message in answer]
    repeats = texts[:1] == [_content(m) for m in prompt[:1]] or all(_content(m) in texts for m in prompt)
    return answer if _role(first) in _OTHERS and repeats else [*prompt, *answer]


def _role(message: Json) -> str:
    return (as_label(first_of(message, "role", "from")) or "").strip().lower()


def _content(message: Any) -> Any:
    return first_of(message, "content", "value") if isinstance(message, dict) else message


def _prompt_digest(attempts: list[list[Any]]) -> str | None:
    """A digest of what all begin with that the agent did not write; None where that is nothing."""
    shared: list[str] = []
    for messages in zip(*attempts, strict=False):
        if any(message != messages[0] for message in messages):
            break
        first = as_object(messages[0])
        if (role := _role(first)) in _OTHERS:
            shared.append(f"{role}: {as_text(_content(first))}")
    if not shared:
        return None
    return blake2b("\n".join(shared).encode("utf-8", "replace"), digest_size=8).hexdigest()


def is_dialogue(value: Any) -> bool:
    """Is it text that spells out its turns, `Human: ...` and `Assistant: ...` after blank lines?"""
    return isinstance(value, str) and _DIALOGUE.match(value) is not None


def hh_rlhf_turns(text: str) -> list[dict[str, Any]]:
    """Its turns, as messages.

    >>> hh_rlhf_turns("\\n\\nHuman: Where?\\n\\nAssistant: There.")
    [{'role': 'user', 'content': 'Where?'}, {'role': 'assistant', 'content': 'There.'}]
    """
    parts = _SPOKEN.split(text)[1:]
    return [
        {"role": _SPEAKERS[who], "content": words} for who, words in zip(parts[::2], parts[1::2], strict=True)
    ]
