"""How a call of Codex ended: by the event that says so, else by the head that Codex writes over a result.

What a command printed stands under a head of its own in what the model reads. A call that Codex refuses has
one line in its place.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from trimtab.traces.core.coerce import as_int, as_label, as_number, as_object, as_text, first_of
from trimtab.traces.core.episode import Call
from trimtab.traces.core.json_text import json_or_text
from trimtab.typing import Json

_HEAD = re.compile(
    r"\A(?:[A-Z][\w ]{2,30}:? [^\n]{0,80}\n){0,6}?(?:Process exited with code|Exit code:) (-?\d+)\n"
)
_SCRIPT = re.compile(r"\AScript failed\n")
_REFUSED = re.compile(
    r"\A(?:unsupported (?:custom tool )?call: |failed to parse function arguments: |"
    r"apply_patch (?:verification failed|handler received)|exec_command failed for |write_stdin failed: |"
    r"(?:command )?aborted by user|unable to locate |(?:patch|exec command) rejected by user)"
)
_OUTPUT = "\nOutput:\n"
_GOOD = ("completed", "success", "succeeded")


class Ended(NamedTuple):
    """What an event says of a call's end. `output` is what it printed."""

    call_id: str
    failed: bool
    code: int | None
    output: str
    seconds: float | None
    command: bool  # is it of a command?


def ended_of(event: Json) -> Ended | None:
    """The end of a call, of an `item_completed` or of one of the older `..._end` events; None of others.

    >>> item = {"type": "CommandExecution", "id": "c", "status": "failed", "exit_code": 1}
    >>> ended_of({"type": "item_completed", "item": item})[:3]
    ('c', True, 1)
    """
    kind = event.get("type")
    if kind == "item_completed":
        item = as_object(event.get("item"))
        call_id, status = as_label(item.get("id")), item.get("status")
        if call_id is None or not isinstance(status, str):
            return None
        return _ended(call_id, item, failed=status not in _GOOD)
    call_id = as_label(event.get("call_id"))
    if call_id is None or kind not in ("exec_command_end", "patch_apply_end", "mcp_tool_call_end"):
        return None
    code, success = as_int(event.get("exit_code")), event.get("success")
    result = as_object(event.get("result"))
    inner = as_object(result.get("Ok"))
    failed = code not in (None, 0) or success is False or "Err" in result or inner.get("isError") is True
    return _ended(call_id, event, failed=failed)


def _ended(call_id: str, fields: Json, failed: bool) -> Ended:
    output = first_of(fields, "aggregated_output", "formatted_output", "stderr", "error")
    took = fields.get("duration")
    seconds = None
    if isinstance(took, dict):
        whole, nanos = as_number(took.get("secs")), as_number(took.get("nanos"))
        seconds = None if whole is None else whole + (nanos or 0.0) / 1e9
    code = as_int(fields.get("exit_code"))
    return Ended(call_id, failed, code, (as_text(output) or "").strip(), seconds, code is not None)


def settle(call: Call, ended: Ended | None) -> None:
    """Give a call its error, and its time.

    What the event says wins; else the head of the result or a refusal. What a command printed counts as no
    failure, however it looks.
    """
    result = call.result or ""
    if call.error_from == "parse":
        return
    if ended is not None:
        call.latency_s = ended.seconds
        call.error = _words(ended.code, ended.output or _printed(result)) if ended.failed else ""
        call.error_from = "log"
        return
    if call.error_from == "log":
        return
    head = _HEAD.match(result)
    code = int(head[1]) if head else _code_of_json(result)
    if code is not None:
        printed = _printed(result) if head else as_text(as_object(json_or_text(result)).get("output")) or ""
        call.error = _words(code, printed.strip()) if code else ""
        call.error_from = "text" if code else "log"
    elif _SCRIPT.match(result):
        call.error, call.error_from = _printed(result) or result, "text"
    elif _REFUSED.match(result):
        call.error, call.error_from = result, "text"


def _code_of_json(result: str) -> int | None:
    """The exit code of an object that versions before 0.50 wrote: `{"output": ..., "metadata": {...}}`."""
    if not result.startswith('{"output"'):
        return None
    return as_int(as_object(as_object(json_or_text(result)).get("metadata")).get("exit_code"))


def _printed(result: str) -> str:
    """What stands under the head."""
    before, separator, after = result.partition(_OUTPUT)
    return after.strip() if separator else before.strip()


def _words(code: int | None, output: str) -> str:
    return output or (f"Exit code {code}" if code is not None else "failed")
