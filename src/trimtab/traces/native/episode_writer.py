"""A log of one's own: episodes written from a loop, in the format of `own_lines`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple

from trimtab.errors import TraceError
from trimtab.traces.core.coerce import as_text
from trimtab.traces.core.episode import Call, Episode, Turn
from trimtab.traces.core.json_text import BadJson, parse_json
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.files.lines import MAX_LINE_BYTES
from trimtab.traces.messages.normalization import ROLES, translated
from trimtab.traces.messages.turns import turns_of
from trimtab.traces.native.field_values import as_json, call_error, fields_of, fitting
from trimtab.traces.native.native_format import dump_episode


class TraceWriter:
    """Write episodes from your own loop; each is on its line, in the kernel's hands, when `write` or the
    `with` ends.

    Opens to append, after a line that was cut on a line of its own. TraceError when the file cannot be
    opened, or after `close`.

    >>> import tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "runs.jsonl")
    >>> with TraceWriter(path) as log, log.episode("e1", task="t7") as e:
    ...     e.message("user", "What is 2+2?")
    ...     e.call("add", {"a": 2, "b": 2}, result="4", latency_s=0.01)
    ...     e.message("assistant", "4")
    ...     e.finish(reward=1.0, success=True, stop_reason="stop")
    >>> from trimtab.traces.read import read_episodes
    >>> [(e.id, len(e.calls), e.reward) for e in read_episodes([path])[0]]
    [('e1', 1, 1.0)]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self._cut = _is_cut(self.path)
            self._file: IO[bytes] | None = open(self.path, "ab", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise TraceError(f"{self.path} cannot be written: {error.strerror or error}") from error

    def write(self, episode: Episode) -> None:
        """Append one episode, its values as the reader takes them (`own_values`).

        TraceError, and nothing written, for one that has no such value.
        """
        if self._file is None:
            raise TraceError(f"the log {self.path} is closed")
        data = f"{dump_episode(Episode(**fitting(Episode, fields_of(episode))))}\n".encode("ascii")
        if len(data) > MAX_LINE_BYTES:
            raise TraceError(
                f"the episode {episode.id!r} is longer than {MAX_LINE_BYTES:,} bytes, which no reader takes"
            )
        data, self._cut = b"\n" * self._cut + data, True
        while data:
            data = data[self._file.write(data) or 0 :]
        self._cut = False

    def episode(self, id: Any, **fields: Any) -> AbstractContextManager[EpisodeLog]:
        """Collect an episode and write it at the end of the block, also when the block raises: then its stop
        reason says so.

        What the block raised is raised on, also where the episode cannot be written; a note of the exception
        then says that. TraceError for a field that an episode does not have, or a value that has no plain
        meaning there.
        """
        return _Block(self, EpisodeLog(Episode(**fitting(Episode, {"id": id, **fields}))))

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Block(NamedTuple):
    """No generator's: contextlib sets a field of the exception, which not every exception lets it."""

    writer: TraceWriter
    log: EpisodeLog

    def __enter__(self) -> EpisodeLog:
        return self.log

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.writer.write(self.log.episode)
            return
        try:
            self.log.episode.stop_reason = f"exception: {kind.__name__}"
            self.writer.write(self.log.episode)
        except Exception as failure:
            with suppress(Exception):  # an exception that takes no note
                note = f"trimtab: its episode is not in the log: {failure}"
                notes = [*getattr(error, "__notes__", ()), note]
                error.__notes__ = notes  # type: ignore[union-attr]  # from Python 3.11 on it is shown


def _is_cut(path: Path) -> bool:
    """Does the file end within a line, as one does whose writer was killed?"""
    if not path.is_file() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def _unread(call: Call) -> str:
    """Read arguments that are a JSON object's text; why they cannot be read, if so."""
    text = call.arguments
    if not isinstance(text, str) or not text.lstrip().startswith("{"):
        return ""
    try:
        call.arguments = parse_json(text)
    except BadJson as error:
        call.arguments, call.bad_arguments = None, text
        return f"arguments are {error}"
    return ""


def _answered(turn: Turn) -> bool:
    return any(call.result is not None or call.error for call in turn.calls)


def _in_our_role(role: str, content: Any) -> dict[str, Any]:
    """The message with its role as the chat reader has it, case aside; a `function_call` with the call in its
    text."""
    if (lower := role.strip().lower()) in ROLES:
        return {"role": lower, "content": content}
    message = translated({"role": role, "content": content})
    return {**message, "content": content} if "tool_calls" not in message else dict(message)


class EpisodeLog:
    """An episode as it happens; see `TraceWriter.episode`.

    Its methods raise TraceError for a field that there is none of, or a value that has no plain meaning
    there, and then add nothing.
    """

    def __init__(self, episode: Episode) -> None:
        self.episode = episode

    def message(self, role: str, content: Any, calls: Sequence[Call] = (), **fields: Any) -> None:
        """Add a turn; `fields` are those of `Turn`, e.g. tokens, token_ids, logprobs, policy_version.

        Roles are brought to ours, and content in blocks (OpenAI's, Anthropic's) is read, as in chat logs:
        calls and reasoning go to their fields, results to the open calls.
        """
        turn = Turn(**fitting(Turn, {"role": role, "calls": calls, **fields}))
        turn.calls = list(calls)
        content = as_json(content, "content")
        normalized = _in_our_role(turn.role, content)
        turn.role = normalized["role"]
        if isinstance(content, list) or "tool_calls" in normalized:
            turns = self._turns_of(normalized)
        else:
            turns = [Turn(role=turn.role, content=as_text(content))]
        if turns and turns[-1].role == turn.role:
            last = turns.pop()
            turn.content, turn.reasoning = last.content, turn.reasoning or last.reasoning
            turn.calls = [*last.calls, *turn.calls]
            turns.append(turn)
        elif calls or fields:  # results alone add no turn: they stand in the calls they answer
            turns.append(turn)
        for one in turns:
            one.step = len(self.episode.turns) if one.step < 0 else one.step
            self.episode.turns.append(one)

    def call(self, name: str, arguments: Any = None, *, parallel: bool = False, **fields: Any) -> None:
        """Add a call; `fields` are those of `Call`.

        It belongs to the latest assistant turn, unless a call of that turn has its answer already: then the
        agent knew it, and the call is a turn of its own. `parallel`: it was made together with the call
        before.

        Without an error, that a result's text starts as one says that there was one, as in chat logs;
        `error=False` that there was none. Arguments that are the text of a JSON object, as OpenAI's clients
        give them, are that object; text that begins as one and is none could not be parsed.
        """
        call = Call(**fitting(Call, {"name": name, "arguments": arguments, **fields}))
        unread = _unread(call)
        if not call.error_from:
            call.error, call.error_from = call_error(fields.get("error"), call.result)
        if unread and not call.error:
            call.error, call.error_from = unread, "parse"
        turns = self.episode.turns
        if not turns or turns[-1].role != "assistant" or (not parallel and _answered(turns[-1])):
            self.message("assistant", None)
        if "step" not in fields:
            call.step = turns[-1].step
        turns[-1].calls.append(call)

    def finish(self, **fields: Any) -> None:
        """Set fields of the episode: reward, success, stop_reason, ..."""
        for name, value in fitting(Episode, fields).items():
            setattr(self.episode, name, value)

    def _turns_of(self, message: dict[str, Any]) -> list[Turn]:
        """The turns of a message as the chat reader has them; results in it go to the calls they answer.

        What else a tool says answers none.
        """
        lists = [turn.calls for turn in self.episode.turns if turn.calls]
        open_calls = [[call for call in calls if call.result is None and not call.error] for calls in lists]
        history = [
            {"role": "assistant", "tool_calls": [{"id": c.id, "function": {"name": c.name}} for c in calls]}
            for calls in open_calls
        ]
        role = message["role"]
        incoming = {**message, "role": "user"} if role == "tool" else message
        read_turns = turns_of([*history, incoming], ReadReport())
        for calls, turn in zip(open_calls, read_turns, strict=False):
            for call, read_call in zip(calls, turn.calls, strict=True):
                if read_call.result is not None:
                    call.result, call.error_from = read_call.result, read_call.error_from
                    call.error = call_error(True, read_call.error)[0] if read_call.error else ""
        turns = read_turns[len(history) :]
        for turn in turns:
            turn.step, turn.role = -1, role if turn.role == incoming["role"] else turn.role
            for call in turn.calls:
                call.step = len(self.episode.turns)
        return turns
