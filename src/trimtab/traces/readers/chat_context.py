"""What stands in a record beside its messages, and belongs to the conversation: the system prompt, the tools,
and the answer to the last request."""

from __future__ import annotations

from typing import Any

from trimtab.traces.core.coerce import as_label, as_object, first_of, objects_in
from trimtab.traces.core.json_text import BadJson, parse_json
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.core.tool_schemas import tools_of
from trimtab.traces.messages.content_blocks import provided
from trimtab.traces.messages.normalization import translated
from trimtab.traces.messages.overlap import key_of
from trimtab.traces.messages.responses_api import in_openais_form
from trimtab.typing import Json

_ANSWERS = ("choices", "candidates", "output", "content")
_CHOICES = "further choices of a response, left out"


def with_names_of_ours(value: dict[str, Any], messages: list[Any]) -> dict[str, Any]:
    """The record with what Gemini's `config` holds, and with the system prompt of another name where the
    messages begin with none.

    >>> with_names_of_ours({"system_prompt": "Be nice."}, [{"role": "user", "content": "a"}])["system"]
    'Be nice.'
    """
    config = value.get("config") if "contents" in value else None  # others' configurations are of anything
    inner = as_object(config)
    system = first_of(inner, "systemInstruction", "system_instruction")
    extra_fields = {"tools": inner.get("tools"), "system": system}
    other = first_of(value, "system_prompt", "instructions")
    if extra_fields["system"] is None and isinstance(other, str) and _first_role(messages) != "developer":
        extra_fields["system"] = other
    if first_of(value, "system", "systemInstruction", "system_instruction") is not None:
        del extra_fields["system"]
    return {**value, **{k: v for k, v in extra_fields.items() if v is not None and value.get(k) is None}}


def system_of(value: Json, messages: list[Any]) -> list[Json]:
    """The system prompt that stands outside the messages: Anthropic's, Bedrock's, LLaMA-Factory's,
    Gemini's."""
    system = first_of(value, "system", "systemInstruction", "system_instruction")
    if not system or _first_role(messages) == "system":
        return []
    if isinstance(system, dict) and "parts" in system:
        return [{"role": "system", "parts": system["parts"]}]
    return [{"role": "system", "content": system}] if isinstance(system, (str, list)) else []


def _first_role(messages: list[Any]) -> Any:
    return translated(messages[0]).get("role") if messages and isinstance(messages[0], dict) else None


def tools_in(value: Json, messages: list[Any], report: ReadReport) -> list[dict[str, Any]] | None:
    """The tools that the record declares, and with them those of the provider's that are called; None where
    it declares none."""
    config = first_of(value, "toolConfig", "tool_config")  # Bedrock's
    declared = as_object(config).get("tools") if value.get("tools") is None else value.get("tools")
    tools = tools_of(declared)
    if tools is None and isinstance(declared, str) and declared.strip():
        report.note("tools that are no JSON list, ignored")
    elif tools is None and declared and not isinstance(declared, str):
        report.note("tools that are neither schemas nor names, ignored")
    if tools is not None:
        known = {one["function"].get("name") for one in tools if isinstance(one.get("function"), dict)}
        ours = [name for name in provided(messages) if name not in known]
        tools += [{"type": "function", "function": {"name": name}} for name in ours]
    return tools


def answer_in(value: Json, messages: list[Any], report: ReadReport) -> tuple[list[Any], str | None]:
    """The messages of the response to them, of its first choice, and why it stopped; none where the messages
    end with it already, or the record holds none.

    Further choices are counted.
    """
    response = value.get("response")
    if isinstance(response, str):
        text, response = response, _object(response)
        is_asked = bool(messages) and _first_role(messages[-1:]) in ("user", "tool")
        if response is None and is_asked and text.strip():  # an answer in plain words, to what is asked last
            response = {"content": text}
    holder = value if isinstance(value.get("choices"), list) else response
    answer, stop, others = _first_choice(holder) if isinstance(holder, dict) else ([], None, 0)
    if others:
        report.note(_CHOICES, others)
    answer_keys = _keys(answer)
    if not answer_keys or _keys(messages)[-len(answer_keys) :] == answer_keys:
        return [], stop
    return answer, stop


def _object(text: str) -> Any:
    try:
        value = parse_json(text)
    except BadJson:
        return None
    return value if isinstance(value, dict) and any(name in value for name in _ANSWERS) else None


def _keys(messages: list[Any]) -> list[Any]:
    """What each message but results says, to know one again."""
    spoken = (one for _, one in in_openais_form(messages, ReadReport()) if one.get("role") != "tool")
    return [key_of(one) for one in spoken]


def _first_choice(response: Json) -> tuple[list[Any], str | None, int]:
    """Messages of a response of OpenAI's, in choices or items, of Anthropic's or Gemini's; why it stopped;
    how many more choices there are."""
    for name, inner, reason in (("choices", "message", "finish_reason"),
        ("candidates", "content", "finishReason")):  # fmt: skip
        choices = objects_in(response.get(name))
        if choices and isinstance(message := choices[0].get(inner), dict):
            message = {"role": "assistant", **message}
            return [message], as_label(choices[0].get(reason)), len(choices) - 1
    if isinstance(output := response.get("output"), list):
        stop = as_label(as_object(response.get("incomplete_details")).get("reason"))
        return objects_in(output), stop, 0
    if isinstance(response.get("content"), (str, list)):
        message = {"role": "assistant", "content": response["content"]}
        return [message], as_label(response.get("stop_reason")), 0
    return [], None, 0
