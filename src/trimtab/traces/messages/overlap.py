"""How much of what a model was asked is known already?

Inputs repeat the conversation so far, in words that may be changed a little.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from trimtab.traces.core.coerce import as_label, as_list, as_object, as_text
from trimtab.traces.core.json_text import json_or_text
from trimtab.traces.core.read_report import ReadReport

Key = tuple[Any, ...]


def key_of(message: Mapping[str, Any]) -> Key:
    """What makes two messages the same: role, text and calls; of a result the id of its call, as its text may
    be shortened.

    >>> key_of({"role": "assistant", "content": " a "}) == key_of({"role": "assistant", "content": "a",
    ...     "reasoning": "b"})
    True
    """
    role = as_label(message.get("role")) or ""
    called = as_label(message.get("tool_call_id"))
    if role == "tool" and called:
        return role, called
    call_keys = tuple(map(_call, as_list(message.get("tool_calls"))))
    return role, (as_text(message.get("content")) or "").strip(), call_keys


def num_known(
    known: Sequence[Key], request: Sequence[Key], report: ReadReport, open: Collection[str] = ()
) -> int:
    """How many messages at the head of `request` are not new.

    All up to the last known one, in order; messages among them that are not known (edited, summarised) are
    counted. Where nothing was answered in `request`, and it does not begin as `known` does, it holds only
    what was added, and only its system prompt can be known. Results of parallel calls may come in any
    order; those of `open` calls, by id, are new wherever they stand, and not counted.

    >>> num_known([("user", "a"), ("assistant", "b")], [("user", "a"), ("assistant", "b"), ("user", "c")],
    ...     ReadReport())
    2
    """
    if list(request) == list(known[: len(request)]):
        return len(request)
    heads = [[key for key in keys if key[0] != "system"][:1] for keys in (known, request)]
    history = heads[0] == heads[1] or any(key[0] == "assistant" for key in request)
    index, last = 0, -1
    changed: list[int] = []
    for i, key in enumerate(request):
        if not history and key[0] != "system":
            break
        match = _index_of(known, key, index)
        if match >= 0:
            index = match + 1
        elif index < len(known) and key[0] == known[index][0] == "assistant":
            index += 1  # the same answer, written down otherwise
            changed.append(i)
        elif key[0] == "tool" and (key[-1] in open or _is_among_results(known, key, index)):
            pass
        else:
            changed.append(i)
            continue
        last = i
    if lost := sum(i < last for i in changed):
        report.note("messages a model was asked that differ from what was said before, left out", lost)
    return last + 1


def _index_of(known: Sequence[Key], key: Key, start: int) -> int:
    try:
        return known.index(key, start)
    except ValueError:
        return -1


def _is_among_results(known: Sequence[Key], key: Key, index: int) -> bool:
    """Is it among the results just before `index`?"""
    while index > 0 and known[index - 1][0] == "tool":
        index -= 1
        if known[index] == key:
            return True
    return False


def _call(raw: Any) -> tuple[str, str]:
    call = as_object(json_or_text(raw))
    function = inner if isinstance(inner := call.get("function"), dict) else call
    arguments = json.dumps(json_or_text(function.get("arguments")), sort_keys=True, default=str)
    return as_label(function.get("name")) or "", arguments
