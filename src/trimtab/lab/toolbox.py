"""The one place where a tool call is executed, worded and reported."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from trimtab.lab.database import NOTHING, TOOL_NAMES, ToolReply, World
from trimtab.lab.executed_world import ExecutedWorld
from trimtab.lab.tool_output import OutputStyle
from trimtab.traces.core.tool_call import ToolCall

OnToolCall = Callable[[Mapping[str, Any]], None]


class ToolAnswer(NamedTuple):
    """Text for the model, and whether the call left the episode valid (`tools.exclusion`)."""

    text: str
    valid: bool


@dataclass(frozen=True)
class Toolbox:
    """Parses `"price tofa"`, queries the world, words the answer in `style`, tells `on_tool_call`.

    The callback receives name, arguments, result_size (characters), error (None or a word), latency_s, step,
    row and turn; with a `service`, which executes the calls, also blame, kind, attempts and queued_s. It runs
    inside the rollout; what it raises is raised. The noise depends on (seed, step, row, turn) only.

    >>> seen = []
    >>> box = Toolbox(World(seed=0, items=50), on_tool_call=seen.append)
    >>> box.call("price nobody", step=0, row=0, turn=1)
    'none'
    >>> seen[0]["name"], seen[0]["arguments"], seen[0]["result_size"], seen[0]["error"]
    ('price', {'item': 'nobody'}, 4, 'no_such_item')
    """

    world: World
    style: OutputStyle = field(default_factory=OutputStyle)
    seed: int = 0
    on_tool_call: OnToolCall | None = None
    service: ExecutedWorld | None = None

    def call(self, text: str, *, step: int, row: int, turn: int) -> str:
        """Execute one call and return the text for the model; a call that cannot be parsed is error
        "bad_call".
        """
        return self.answer(text, step=step, row=row, turn=turn).text

    def answer(self, text: str, *, step: int, row: int, turn: int) -> ToolAnswer:
        """Execute one call as `call` does, and say whether its episode stays valid."""
        name, _, item = text.partition(" ")
        start = time.perf_counter()
        record: ToolCall | None = None
        if not item:
            reply = ToolReply(NOTHING, "bad_call")
        elif self.service is None:
            reply = self.world.query(name, item)
        else:
            reply, record = self.service.query(name, item, step=step, row=row)
        latency_s = time.perf_counter() - start
        rng = np.random.default_rng([self.seed, step, row, turn])
        result = self.style.render(reply.value, step, rng)
        if self.on_tool_call is not None:
            self.on_tool_call(
                {
                    "name": name,
                    "arguments": {"item": item},
                    "result_size": len(result),
                    "error": reply.error,
                    "latency_s": latency_s,
                    "step": step,
                    "row": row,
                    "turn": turn,
                    **(_fate(record) if record is not None else {}),
                }
            )
        broken = record is not None and self.service is not None and self.service.exclusion.breaks(record)
        return ToolAnswer(result, not broken)

    @staticmethod
    def index(text: str) -> int:
        """Number of the called tool as in `TokenBatch.tool`: 1.. for TOOL_NAMES, one more for any other."""
        name = text.partition(" ")[0]
        return TOOL_NAMES.index(name) + 1 if name in TOOL_NAMES else len(TOOL_NAMES) + 1


def _fate(call: ToolCall) -> dict[str, Any]:
    """What only an executor knows of a call."""
    return {"blame": call.blame, "kind": call.kind, "attempts": call.attempts, "queued_s": call.queued_s}
