"""The lab's tools behind the executor, whose answers can be checked, with chaos where asked.

An answer is an envelope that repeats tool and item and has a checksum. So a truncated, corrupt or stale
answer is known for what it is; without something to check, nobody could tell it from a good one.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from trimtab.lab.database import NOTHING, TOOL_NAMES, ToolReply, World
from trimtab.tools.blocking import ExecutorThread
from trimtab.tools.chaos import Chaos, with_chaos
from trimtab.tools.exclusion import Exclusion
from trimtab.tools.executor import Executor, ExecutorOptions
from trimtab.tools.retries import RetryOptions
from trimtab.tools.tool_definition import Tool
from trimtab.traces.core.tool_call import ToolCall

_SCHEMA = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
_MAX_ANSWER = 10_000  # characters of an envelope


class ExecutedWorld:
    """The world's tools run by an executor in a thread of its own; use it as a context manager.

    Looking up an item always takes microseconds, so the policy cannot cause a time-out: `exclusion` leaves
    such episodes out too.

    >>> with ExecutedWorld(World(seed=0, items=50)) as service:
    ...     reply, call = service.query("price", "nobody", step=0, row=0)
    >>> reply.error, call.blame, service.exclusion.valid([call])
    ('no_such_item', '', True)
    """

    def __init__(
        self,
        world: World,
        *,
        chaos: Chaos | None = None,
        tools: Sequence[str] = TOOL_NAMES,
        from_step: int = 0,
        retry: RetryOptions | None = None,
    ) -> None:
        self.world, self.chaos, self.from_step = world, chaos, from_step
        self.exclusion = Exclusion(kinds=frozenset({"timeout"}))
        self._rates = dict(chaos.rates) if chaos is not None else {}
        plain = {name: self._tool(name) for name in TOOL_NAMES}
        spoiled = {name: with_chaos(plain[name], chaos) for name in tools if chaos is not None}
        options = ExecutorOptions(retry=retry or RetryOptions(attempts=2, initial_s=0.001, jitter_s=0.001))
        self._thread = ExecutorThread(Executor((plain | spoiled).values(), options=options))

    def __enter__(self) -> ExecutedWorld:
        self._thread.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.__exit__(kind, error, trace)

    def query(self, tool: str, item: str, *, step: int, row: int) -> tuple[ToolReply, ToolCall]:
        """Ask a tool and return its reply with the record; a failed call has the reply "none" and its error.

        Faults begin with the optimizer step `from_step`.
        """
        if self.chaos is not None:
            self.chaos.rates = self._rates if step >= self.from_step else {}
        result = self._thread.call(tool, {"item": item}, step=step, episode_id=row)
        if not result.ok:
            error = "unknown_tool" if result.call.kind == "unknown_tool" else result.call.error
            return ToolReply(NOTHING, error), result.call
        envelope = json.loads(result.value)
        return ToolReply(envelope["value"], envelope["error"]), result.call

    def _tool(self, name: str) -> Tool:
        async def run(arguments: Mapping[str, Any]) -> str:
            reply = self.world.query(name, arguments["item"])
            return sealed_answer(name, arguments["item"], reply)

        return Tool(
            name=name, run=run, schema=_SCHEMA, target="world", idempotent=True, timeout_s=0.05,
            check_result=lambda arguments, value: answer_problem(name, arguments["item"], value),
        )  # fmt: skip


def sealed_answer(tool: str, item: str, reply: ToolReply) -> str:
    """Return a reply in an envelope: what was asked, the answer, and a checksum over both."""
    fields = {"tool": tool, "item": item, "value": reply.value, "error": reply.error}
    return json.dumps({**fields, "crc": _checksum(fields)})


def answer_problem(tool: str, item: str, text: str) -> str:
    """Return what is wrong with an envelope, "" if nothing.

    >>> answer = sealed_answer("price", "tofa", ToolReply("482"))
    >>> answer_problem("price", "tofa", answer), answer_problem("price", "tofa", answer[:-1])
    ('', 'not a whole envelope')
    >>> answer_problem("price", "bige", answer), answer_problem("price", "tofa", answer.replace("482", "483"))
    ('the answer of another call', 'a wrong checksum')
    """
    if len(text) > _MAX_ANSWER:
        return "longer than any answer"
    try:
        fields = json.loads(text)
        checksum = fields.pop("crc")
    except (ValueError, AttributeError, KeyError, TypeError):
        return "not a whole envelope"
    if checksum != _checksum(fields):
        return "a wrong checksum"
    return "" if (fields.get("tool"), fields.get("item")) == (tool, item) else "the answer of another call"


def _checksum(fields: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(fields, sort_keys=True).encode())
