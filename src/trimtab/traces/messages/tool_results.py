"""Calls of chat messages, and what came back: the call a result answers, and whether it failed."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from trimtab.traces.core.coerce import (
    as_flag,
    as_label,
    as_list,
    as_number,
    as_object,
    as_text,
    as_time,
    first_of,
    objects_in,
)
from trimtab.traces.core.episode import Call
from trimtab.traces.core.json_text import BadJson, parse_json
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.errors.detect import error_text, error_words, says_fine, says_no_error
from trimtab.typing import Json

_BAD = ("error", "failed", "failure")
_INVALID = "invalid_tool_call"
_QUOTED = re.compile(r"tool call arguments:\n\n(.*)\n\nError details:", re.S)


def raw_calls(message: Json, report: ReadReport) -> list[Any]:
    """The calls a message makes, in OpenAI's form of today or of old, or its JSON text; with them those that
    LangChain could not parse."""
    calls, invalid = message.get("tool_calls"), message.get("invalid_tool_calls")
    if isinstance(invalid, list) and invalid:
        return [*as_list(calls), *({**call, "type": _INVALID} for call in objects_in(invalid))]
    if isinstance(calls, str):  # ART's Parquet files hold them as JSON text
        with suppress(BadJson):
            calls = parse_json(calls)
    if isinstance(calls, list):
        return calls
    if calls:
        report.unread_message("calls of a message that are no list, left out", as_object(calls))
    old = message.get("function_call")
    return [old] if isinstance(old, dict) else []


def call_of(raw: Any, step: int, report: ReadReport) -> Call:
    """One of them; arguments, or a whole call, that are no JSON are kept as text, and counted."""
    if isinstance(raw, str):  # verifiers and ShareGPT write calls as JSON text
        try:
            raw = parse_json(raw)
        except BadJson as error:
            report.note("calls that are no JSON, kept as text")
            return Call(bad_arguments=raw, error=f"the call is {error}", error_from="parse", step=step)
    call = as_object(raw)
    inner = call.get("function")
    function: Json = inner if isinstance(inner, dict) else call
    name = inner if isinstance(inner, str) else function.get("name")  # Inspect: function is the name
    parsed = Call(name=as_label(name) or "", id=as_label(call.get("id")) or "", step=step)
    arguments = function.get("arguments", function.get("args"))
    if not parsed.name:
        report.unread_message("calls without a name, kept", call)
    if isinstance(refused := call.get("parse_error"), str) and refused:  # Inspect
        quoted = _QUOTED.search(refused)
        parsed.bad_arguments = quoted[1] if quoted else refused
        parsed.error, parsed.error_from = refused, "parse"
        report.note("calls whose arguments are no JSON, kept as text")
        return parsed
    if call.get("type") == _INVALID:
        parsed.bad_arguments = as_text(arguments) or ""
        parsed.error, parsed.error_from = as_text(call.get("error")) or "arguments are no JSON", "parse"
        report.note("calls whose arguments are no JSON, kept as text")
        return parsed
    if not isinstance(arguments, str):
        parsed.arguments = arguments
        return parsed
    try:
        parsed.arguments = parse_json(arguments) if arguments.strip() else None
    except BadJson as error:
        parsed.bad_arguments = arguments
        parsed.error, parsed.error_from = f"arguments are {error}", "parse"
        report.note("calls whose arguments are no JSON, kept as text")
    return parsed


def answered(pending: list[Call], message: Json) -> Call | None:
    """The call a result answers: of the open ones of its id the first of the latest message; without an id,
    the first open one of its name, or at all."""
    wanted = as_label(message.get("tool_call_id"))
    name = as_label(message.get("name"))
    if wanted:
        same = [i for i, call in enumerate(pending) if call.id == wanted]
        candidates = [i for i in same if pending[i].step == pending[same[-1]].step]
    else:
        candidates = [i for i, call in enumerate(pending) if name in (None, call.name)]
    return pending.pop(candidates[0]) if candidates else None


def answer(call: Call, message: Json) -> None:
    """Give the call its result, and its error where a field of the log says that it failed, or none does and
    the text says so."""
    call.result = as_text(first_of(message, "content", "value")) or ""
    call.latency_s = as_number(first_of(message, "latency_s", "duration_s", "latency"))
    call.time = as_time(message.get("timestamp"))
    if (failed := _failed(message)) is not None:
        if failed:
            call.error = _error_said(message) or call.result or "error"
        if failed or not call.error:
            call.error_from = "log"
    elif not call.error and (text := error_text(call.result)):
        call.error, call.error_from = text, "text"


def _failed(message: Json) -> bool | None:
    """Did the call fail, by a field of its result's message? None where none says."""
    flags = [as_flag(message.get(name)) for name in ("is_error", "isError")]
    status, error = as_label(message.get("status")), message.get("error")
    if True in flags or status in _BAD or not says_no_error(error):
        return True
    return False if False in flags or status == "success" or says_fine(error) else None


def _error_said(message: Json) -> str | None:
    """What the message's `error` says, where it is more than a flag."""
    error = message.get("error")
    if isinstance(error, dict):
        error = first_of(error, "message", "type") or error
    return None if says_no_error(error) else error_words(error)
