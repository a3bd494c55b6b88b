"""Items of the tools that the provider runs (Responses API): `mcp_call`, `web_search_call`, `shell_call` and
their like, as a call and its result.

Most hold what came back in themselves; those that the client runs (shells, patches, the computer) have it in
an item of its own.
"""

from __future__ import annotations

from typing import Any

from trimtab.traces.core.coerce import as_object, first_of, objects_in
from trimtab.traces.core.read_report import ReadReport
from trimtab.typing import Json

PROVIDER_CALLS: dict[str, tuple[str, ...]] = {
    "mcp_call": ("arguments",),
    "mcp_approval_request": ("server_label", "name", "arguments"),
    "web_search_call": ("action",),
    "file_search_call": ("queries",),
    "code_interpreter_call": ("code",),
    "image_generation_call": ("revised_prompt",),
    "computer_call": ("action", "actions"),
    "local_shell_call": ("action",),
    "shell_call": ("action",),
    "apply_patch_call": ("operation",),
}
"""Kinds of calls, and the fields that are what was asked for: an object in one of `_WHOLE` is all of it."""
PROVIDER_RESULTS = {
    "computer_call_output": "call_id",
    "local_shell_call_output": "call_id",
    "shell_call_output": "call_id",
    "apply_patch_call_output": "call_id",
    "mcp_approval_response": "approval_request_id",
}
"""Kinds of results, and the field that names the call."""
CLIENT_RUN = ("computer_call", "local_shell_call", "shell_call", "apply_patch_call", "mcp_approval_request")
"""Calls that an item of its own answers."""
_WHOLE = ("action", "operation", "arguments")
_OUTPUTS = ("output", "outputs", "results", "result")
_BY_STATUS = "calls of the provider's own tools whose results the log does not keep, answered by their status"


def blocks_of_item(item: Json, report: ReadReport) -> list[Json] | None:
    """The call, and the result if the item has one, or the result alone, as blocks; None for an item of
    another kind.

    Where the log keeps no result, but says that the call was completed or failed, that word is the result,
    counted.

    >>> item = {"type": "mcp_call", "id": "m", "name": "ask", "arguments": "{}", "output": "yes"}
    >>> [(block["type"], block.get("content")) for block in blocks_of_item(item, ReadReport())]
    [('server_tool_use', None), ('tool_result', 'yes')]
    """
    kind = item.get("type")
    if not isinstance(kind, str):
        return None
    if kind in PROVIDER_RESULTS:
        return [_result(kind, item)]
    if kind not in PROVIDER_CALLS:
        return None
    call = {"type": "server_tool_use", "id": first_of(item, "call_id", "id"), "name": _name(kind, item)}
    blocks: list[Json] = [{**call, "input": _input(kind, item)}]
    if kind in CLIENT_RUN:
        return blocks
    output, error, status = _output(kind, item), item.get("error"), item.get("status")
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": output, "error": error}
    if output is not None or error is not None:
        blocks.append({**result, "status": status})
    elif status in ("completed", "failed"):
        report.note(_BY_STATUS)
        blocks.append({**result, "content": status, "status": status})
    return blocks


def _name(kind: str, item: Json) -> Any:
    return item.get("name") if kind == "mcp_call" else kind.removesuffix("_call")


def _input(kind: str, item: Json) -> Any:
    fields = {name: item[name] for name in PROVIDER_CALLS[kind] if item.get(name) is not None}
    if len(fields) == 1 and fields.keys() <= set(_WHOLE):
        (whole,) = fields.values()
        if isinstance(whole, dict):
            return {name: value for name, value in whole.items() if name != "sources" and value is not None}
        if kind == "mcp_call":  # in JSON text
            return whole
    return fields


def _output(kind: str, item: Json) -> Any:
    """What came back, if the item has it; of code what it printed, of images what stands for one."""
    output = first_of(item, *_OUTPUTS)
    action = item.get("action")
    if output is None and isinstance(action, dict):
        return action.get("sources")  # of a search
    if kind == "image_generation_call" and output is not None:
        return [{"type": "image", "image": output}]
    if kind == "code_interpreter_call" and isinstance(output, list):
        logs = [one.get("logs") if isinstance(one, dict) else None for one in output]
        pairs = zip(output, logs, strict=True)
        return [{"type": "text", "text": text} if isinstance(text, str) else one for one, text in pairs]
    return output


def _result(kind: str, item: Json) -> Json:
    result = {
        "type": "tool_result",
        "tool_use_id": first_of(item, PROVIDER_RESULTS[kind], "id"),
        "content": item.get("output"),
        "status": item.get("status"),
        "error": item.get("error"),
    }
    if kind == "mcp_approval_response":
        approval = {name: item[name] for name in ("approve", "reason") if item.get(name) is not None}
        return {**result, "content": approval}
    if kind == "computer_call_output" and isinstance(result["content"], dict):
        return {**result, "content": [result["content"]]}  # a picture
    if kind == "shell_call_output" and result["error"] is None:
        return {**result, "error": _ended_badly(result["content"])}
    return result


def _ended_badly(output: Any) -> str | None:
    """What the first command says that did not end well, of a shell's `outcome`s."""
    for one in objects_in(output):
        outcome = as_object(one.get("outcome"))
        if outcome.get("type") == "timeout":
            return "the command timed out"
        if outcome.get("exit_code") not in (None, 0):
            return f"Command exited with code {outcome['exit_code']}"
    return None
