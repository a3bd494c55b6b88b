"""The one record every agent log becomes: an Episode of Turns, each with its Calls.

None means that the log did not say; NaN means that it said NaN. The two are never mixed, so a reward that was
NaN stays an alarm of its own.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from trimtab.traces.core.tool_call import ToolCall


class Call(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One call of a tool and what came back.

    `arguments`: the JSON value the model gave; `bad_arguments`: its text when that is not JSON. `result` is
    None where the log has none. `error` is empty on success; `error_from` says who called it one: `log` (a
    field of the log; also where one says that there was none), `text` (read off the result's text) or `parse`
    (the arguments). `latency_s` in seconds of wall time.
    """

    name: str = ""
    arguments: Any = None
    bad_arguments: str | None = None
    id: str = ""
    result: str | None = None
    error: str = ""
    error_from: str = ""
    latency_s: float | None = None
    time: float | None = None
    step: int = -1


class Turn(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One message. Results of calls stand in the calls; a `tool` turn is a result that answers no call.

    `log_ratios` (nats, NaN where there is none; of what, the episode's `log_ratio_of` says) and `token_texts`
    are parallel to `token_ids` too.

    `token_ids`, `logprobs` (nats, of the policy that sampled; NaN where it did not) and `mask` (1: the model
    wrote it) are parallel when present.
    """

    role: str = ""
    content: str | None = None
    reasoning: str | None = None
    calls: list[Call] = msgspec.field(default_factory=list)
    step: int = -1
    name: str | None = None
    time: float | None = None
    tokens: int | None = None
    token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    mask: list[int] | None = None
    log_ratios: list[float] | None = None
    token_texts: list[str] | None = None
    policy_version: int | str | None = None


class Episode(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One run of the agent on one task.

    `task`: the same text for attempts at the same task; `group`: the group whose rewards were compared in
    training. `success` is the log's own word, never derived here. `tools`: schemas as OpenAI and TRL write
    them. `log_ratio_of`: the log of what its turns' `log_ratios` are, as `trainer / sampler`. `source` is
    `file:line` of its first record. `for_training`: a row to train on, which ends where the agent's last turn
    does, whatever came after. `extra` holds what the format has and we have no field for.
    """

    id: str
    turns: list[Turn] = msgspec.field(default_factory=list)
    task: str | None = None
    group: str | None = None
    reward: float | None = None
    reward_parts: dict[str, float] = msgspec.field(default_factory=dict)
    success: bool | None = None
    stop_reason: str | None = None
    tools: list[dict[str, Any]] | None = None
    model: str | None = None
    policy_version: int | str | None = None
    step: int | None = None
    time: float | None = None
    duration_s: float | None = None
    tokens: int | None = None
    cost: float | None = None
    log_ratio_of: str | None = None
    source: str = ""
    for_training: bool = False
    extra: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def calls(self) -> list[Call]:
        """Every call, in order.

        >>> Episode(id="a", turns=[Turn(role="assistant", calls=[Call(name="search")])]).calls[0].name
        'search'
        """
        return [call for turn in self.turns for call in turn.calls]

    @property
    def largest_log_ratio(self) -> float | None:
        """The largest |log-ratio| of its tokens, in nats; None without any.

        >>> Episode(id="a", turns=[Turn(log_ratios=[0.5, -2.0, float("nan")])]).largest_log_ratio
        2.0
        """
        ratios = [turn.log_ratios for turn in self.turns if turn.log_ratios]
        known = (abs(r) for some in ratios for r in some if math.isfinite(r))
        return max(known, default=None)

    def tool_calls(self, step: int = -1, number: int = -1) -> list[ToolCall]:
        """The calls as the flat records `measure.ToolHealth` takes; `number` is the episode's id there.

        >>> Episode(id="a", turns=[Turn(calls=[Call(name="add",
        ...     result="12")])]).tool_calls(step=3)[0].result_size
        2
        """
        nan = float("nan")
        return [
            ToolCall(
                name=call.name,
                arguments=call.arguments if isinstance(call.arguments, dict) else {},
                result_size=len(call.result or ""),
                error=call.error,
                latency_s=nan if call.latency_s is None else call.latency_s,
                step=step,
                episode_id=number,
            )
            for call in self.calls
        ]
