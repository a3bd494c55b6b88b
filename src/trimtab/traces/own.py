"""Our own JSONL: one episode a line, `{"trimtab": 1, "id": ..., "turns": [...]}`, NaN and infinity written as such."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import msgspec

from trimtab.errors import TraceError
from trimtab.traces.episode import Call, Episode, Turn
from trimtab.traces.reading import ReadReport, Record

__all__ = ["VERSION", "EpisodeLog", "TraceWriter", "dump_episode", "is_own", "read_own"]

VERSION = 1


def dump_episode(episode: Episode) -> str:
    """One line of our format, without its end.

    >>> dump_episode(Episode(id="a", reward=float("nan")))
    '{"trimtab": 1, "id": "a", "reward": NaN}'
    """
    return json.dumps({"trimtab": VERSION, **msgspec.to_builtins(episode)})


def is_own(value: dict[str, Any]) -> bool:
    """Is it a line of our format?"""
    return "trimtab" in value and "id" in value


def read_own(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """Episodes of our own lines. What does not fit the record is malformed; fields we do not know are ignored."""
    for record in records:
        version = record.value.get("trimtab") if isinstance(record.value, dict) else None
        if isinstance(version, int) and version > VERSION:
            raise TraceError(
                f"{record.source}: written by a newer trimtab (format {version}); upgrade to read it"
            )
        try:
            episode = msgspec.convert(record.value, Episode)
        except (msgspec.ValidationError, OverflowError, UnicodeError) as error:
            report.malformed(record.file, record.line, str(error))
            continue
        episode.source = episode.source or record.source
        yield episode


class TraceWriter:
    """Write episodes from your own loop; each is on its line, in the kernel's hands, when `write` or the `with` ends.

    Opens to append. TraceError when the file cannot be opened, or after `close`.

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
            self._file: IO[bytes] | None = open(self.path, "ab", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise TraceError(f"{self.path} cannot be written: {error.strerror or error}") from error

    def write(self, episode: Episode) -> None:
        """Append one episode."""
        if self._file is None:
            raise TraceError(f"the log {self.path} is closed")
        data = f"{dump_episode(episode)}\n".encode("ascii")
        while data:
            data = data[self._file.write(data) or 0 :]

    @contextmanager
    def episode(self, id: str, **fields: Any) -> Iterator[EpisodeLog]:
        """Collect an episode and write it at the end of the block, also when the block raises: then its stop reason says so."""
        log = EpisodeLog(Episode(id=id, **fields))
        try:
            yield log
        except BaseException as error:
            log.episode.stop_reason = f"exception: {type(error).__name__}"
            raise
        finally:
            self.write(log.episode)

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


class EpisodeLog:
    """An episode as it happens; see `TraceWriter.episode`."""

    def __init__(self, episode: Episode) -> None:
        self.episode = episode

    def message(self, role: str, content: str | None, calls: Sequence[Call] = (), **fields: Any) -> None:
        """Add a turn; `fields` are those of `Turn`, e.g. tokens, token_ids, logprobs, policy_version."""
        step = len(self.episode.turns)
        self.episode.turns.append(Turn(role=role, content=content, calls=list(calls), step=step, **fields))

    def call(self, name: str, arguments: Any = None, **fields: Any) -> None:
        """Add a call to the latest assistant turn, or to a new one; `fields` are those of `Call`."""
        turns = self.episode.turns
        if not turns or turns[-1].role != "assistant":
            self.message("assistant", None)
        turns[-1].calls.append(Call(name=name, arguments=arguments, step=turns[-1].step, **fields))

    def finish(self, **fields: Any) -> None:
        """Set fields of the episode: reward, success, stop_reason, ... TraceError for one that it does not have."""
        for name, value in fields.items():
            if name not in Episode.__struct_fields__:
                raise TraceError(f"an episode has no field {name!r}; put it into extra")
            setattr(self.episode, name, value)
