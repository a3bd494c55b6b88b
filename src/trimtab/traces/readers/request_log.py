"""Logs of requests to a model, each with its answer: AutoGen's `LLMCall` events, and what proxies write.

A request repeats the conversation so far. So the one that begins with all of an earlier one, answer included,
goes on with it, and only the last of such a chain is an episode.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

from trimtab.traces.core.coerce import as_label
from trimtab.traces.core.episode import Episode
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.files.json_records import iter_objects
from trimtab.traces.messages.overlap import key_of
from trimtab.traces.messages.responses_api import in_openais_form
from trimtab.traces.readers.chat import chat_episode, is_messages, messages_in
from trimtab.traces.readers.preferences import is_preference
from trimtab.typing import Json

MAX_OPEN = 2_000
"""Conversations that may still go on; of more the oldest is taken for ended."""
_REPEATED = "requests to a model that a later one goes on with, read once"
_OTHERS = "records between requests to a model, left out"


def is_request(value: Json) -> bool:
    """Has it messages, and the response to them as an object of a provider's?"""
    answered = isinstance(value.get("choices"), list) or isinstance(value.get("response"), dict)
    return answered and is_messages(value) and not is_preference(value)


def read_requests(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """An episode a conversation: the last request of it."""
    waiting: OrderedDict[int, list[tuple[Record, dict[str, Any]]]] = OrderedDict()  # by what was said in it
    for record, value in iter_objects(records, report):
        if not is_messages(value):
            report.note_each(_OTHERS, as_label(value.get("type")) or "")
            continue
        before, whole = _digests(value)
        earlier = next((one for one in reversed(before) if one in waiting), None)
        if earlier is not None:
            report.note(_REPEATED)
            waiting[earlier].pop()
            if not waiting[earlier]:
                del waiting[earlier]
        waiting.setdefault(whole, []).append((record, value))
        if len(waiting) > MAX_OPEN:
            yield from _episodes(waiting.popitem(last=False)[1], report)
    for one in waiting.values():
        yield from _episodes(one, report)


def _episodes(requests: list[tuple[Record, dict[str, Any]]], report: ReadReport) -> Iterator[Episode]:
    for record, value in requests:
        episode = chat_episode(record, value, report)
        if episode is None:
            report.malformed(record.file, record.line, "no messages")
        else:
            yield episode


def _digests(value: Json) -> tuple[list[int], int]:
    """A number for each head of the request's messages, and one for all of them with the answer."""
    messages, answer, _ = messages_in(value, ReadReport())
    heads = [hash(str(value.get("system")))]
    for _, message in in_openais_form(messages, ReadReport()):
        heads.append(hash((heads[-1], key_of(message))))
    whole = heads[-1]
    for _, message in in_openais_form(answer, ReadReport()):
        whole = hash((whole, key_of(message)))
    return heads[1:], whole
