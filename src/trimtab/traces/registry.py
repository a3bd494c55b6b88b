"""The table of formats: how each is recognised by its first records, and what reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from trimtab.traces.core.episode import Episode
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.native.native_format import is_own, read_own
from trimtab.traces.readers.chat import is_messages, read_messages
from trimtab.traces.readers.coding_agents.atif import is_atif, read_atif
from trimtab.traces.readers.coding_agents.claude_code import is_claude, read_claude
from trimtab.traces.readers.coding_agents.codex import is_codex, read_codex
from trimtab.traces.readers.coding_agents.codex_exec import begins_codex_exec, read_codex_exec
from trimtab.traces.readers.coding_agents.openhands import (
    is_openhands_event,
    is_openhands_row,
    read_openhands_events,
    read_openhands_rows,
)
from trimtab.traces.readers.inspect_ai import is_inspect, read_inspect
from trimtab.traces.readers.mapped import read_mapped
from trimtab.traces.readers.multi_agent.ag2_events import is_ag2_event, read_ag2_events
from trimtab.traces.readers.multi_agent.autogen_chats import (
    is_chat_message,
    is_chat_row,
    read_chat_messages,
    read_chat_rows,
)
from trimtab.traces.readers.nemo_rl import is_nemo, read_nemo
from trimtab.traces.readers.otel.otlp_json import is_otlp
from trimtab.traces.readers.otel.reader import read_otlp
from trimtab.traces.readers.prime_rl import is_prime, read_prime
from trimtab.traces.readers.ptt_steps.reader import is_step, read_steps
from trimtab.traces.readers.request_log import is_request, read_requests
from trimtab.traces.readers.swe_agent import is_mini, is_swe, read_mini, read_swe
from trimtab.traces.readers.tau_bench import is_any_tau, read_any_tau
from trimtab.traces.readers.trl.completions import is_trl, read_trl
from trimtab.traces.readers.verifiers.results import is_verifiers, read_verifiers
from trimtab.traces.readers.verl_rollouts import is_verl, read_verl

Reader = Callable[[Iterable[Record], ReadReport], Iterator[Episode]]


def _never(value: Mapping[str, Any]) -> bool:
    del value
    return False


@dataclass(frozen=True)
class Format:
    """A format and its reader."""

    what: str
    matches: Callable[[dict[str, Any]], bool]  # is this record of the format?
    reader: Reader | None  # None: `mapped`, which also takes the mapping
    by_line: bool = False  # may its lines be shared between workers?

    def read(self, mapping: Mapping[str, str]) -> Reader:
        """The reader, bound to `mapping` where it needs one."""
        return self.reader or partial(read_mapped, mapping)


FORMATS: dict[str, Format] = {
    "trimtab": Format("our own JSONL, one episode a line", is_own, read_own, by_line=True),
    "steps": Format("post-training-toolkit step JSONL, one event a line", is_step, read_steps, by_line=True),
    "tau": Format(
        "tau-bench results: trajectories with rewards; tau2-bench simulations", is_any_tau, read_any_tau, True
    ),
    "otlp": Format(
        "OpenTelemetry spans, OTLP JSON: GenAI conventions, OpenInference and Vercel's AI SDK",
        is_otlp,
        read_otlp,
    ),
    "inspect": Format("Inspect logs, JSON or .eval", is_inspect, read_inspect),
    "swe-agent": Format("SWE-agent trajectories (.traj)", is_swe, read_swe),
    "mini-swe-agent": Format("mini-swe-agent trajectories (.traj.json)", is_mini, read_mini),
    "claude-code": Format("Claude Code's session logs, and its stream-json output", is_claude, read_claude),
    "codex": Format("Codex CLI rollouts (rollout-*.jsonl)", is_codex, read_codex),
    "codex-exec": Format("what `codex exec --json` prints", begins_codex_exec, read_codex_exec),
    "atif": Format("ATIF, Harbor's and terminal-bench's trajectory.json", is_atif, read_atif, by_line=True),
    "openhands": Format(
        "OpenHands evaluations (output.jsonl)", is_openhands_row, read_openhands_rows, by_line=True
    ),
    "openhands-events": Format(
        "OpenHands conversations: events in one file, or in a folder with a file for each",
        is_openhands_event,
        read_openhands_events,
    ),
    "verifiers": Format(
        "verifiers results.jsonl; since 0.4 traces.jsonl", is_verifiers, read_verifiers, by_line=True
    ),
    "prime-rl": Format("prime-rl token exports", is_prime, read_prime, by_line=True),
    "nemo-rl": Format("NeMo RL's train_data_step<N>.jsonl", is_nemo, read_nemo, by_line=True),
    "verl": Format("verl rollout dumps (trainer.rollout_data_dir)", is_verl, read_verl, by_line=True),
    "trl": Format("TRL completions (log_completions), Parquet", is_trl, read_trl, by_line=True),
    "ag2": Format("AG2 1.x: event logs of a knowledge store, and evaluations", is_ag2_event, read_ag2_events),
    "autogen": Format(
        "chats of AG2 and of AutoGen's AgentChat (Magentic-One), one a record",
        is_chat_row,
        read_chat_rows,
        True,
    ),
    "autogen-messages": Format(
        "a chat of AG2, AgentChat, Magentic-One or OpenAI's messages, one message a record",
        is_chat_message,
        read_chat_messages,
    ),
    "requests": Format(
        "requests to a model, each with its response (AutoGen's LLMCall events, proxies' logs)",
        is_request,
        read_requests,
    ),
    "messages": Format(
        "chat messages of OpenAI (Responses too), Anthropic, Gemini, Bedrock, LangChain, Vercel and "
        "ShareGPT; TRL conversational sets, pairs and labels too",
        is_messages,
        read_messages,
        by_line=True,
    ),
    "mapped": Format("anything else, by --map FIELD=JSON.PATH", _never, None, by_line=True),
}
"""In the order in which they are tried."""


def find_format(values: Iterable[Any]) -> str | None:
    """The format of the first record that is of one; None where none is.

    >>> find_format([[1], {"episode_id": "a", "type": "tool_call"}])
    'steps'
    """
    for value in values:
        for name, format in FORMATS.items():
            if isinstance(value, dict) and format.matches(value):
                return name
    return None
