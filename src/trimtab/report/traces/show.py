"""Episodes as lines for a terminal: a list of them, or one in full. Text of a log is hostile: it is shown,
never obeyed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from trimtab.errors import TraceError
from trimtab.report.control_characters import escape_controls
from trimtab.traces.core.episode import Call, Episode
from trimtab.traces.core.plural import counted
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.native.native_format import dump_episode
from trimtab.traces.read import iter_episodes
from trimtab.traces.table.episode_facts import arguments_text

_MAX_TEXT = 4_000
"""Characters of one message or result that are printed; how many more there are is said."""


def show(
    paths: Iterable[str | Path],
    episode: str | None = None,
    limit: int = 20,
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
    as_json: bool = False,
    strict: bool = False,
) -> Iterator[str]:
    """A line an episode, or one episode in full; as our own JSON with `as_json`. TraceError for an id that is
    not there, and with `strict` for the first malformed line."""
    report = ReadReport(strict=strict)
    count = 0
    for current in iter_episodes(paths, report, format, mapping):
        if episode is not None and current.id != episode:
            continue
        count += 1
        if count > limit:
            continue
        if as_json:
            yield dump_episode(current)
        elif episode is None:
            yield _line(current)
        else:
            yield from episode_lines(current)
    if episode is not None and not count:
        raise TraceError(
            f"no episode {episode!r} among {report.num_episodes:,}; `trimtab traces show` lists them"
        )
    if count > limit and not as_json:
        yield f"and {count - limit:,} more (--limit)"


def _line(episode: Episode) -> str:
    calls = episode.calls
    failed = sum(bool(call.error) for call in calls)
    text = f"{episode.id}: {_outcome(episode)}, {counted(len(episode.turns), 'turn')}, {counted(len(calls), 'call')}, {failed} failed, {episode.stop_reason or 'no stop reason'}"  # noqa: E501
    return escape_controls(text)


def _outcome(episode: Episode) -> str:
    """The reward; without one, the log's word of success."""
    if episode.reward is not None:
        return f"reward {episode.reward:g}"
    return "no reward" if episode.success is None else _success(episode.success)


def _success(success: bool) -> str:
    return "success" if success else "no success"


def episode_lines(episode: Episode) -> Iterator[str]:
    """The episode in full, but for texts beyond 4,000 characters, which are cut and say so. Turns go by the
    log's steps; where those begin again, by their place, with the step behind it."""
    yield _line(episode)
    facts = [
        "no task" if episode.task is None else f"task {episode.task}",
        "success not said" if episode.success is None else _success(episode.success),
        *([] if episode.tokens is None else [counted(episode.tokens, "token")]),
        f"from {episode.source}",
    ]
    yield escape_controls(f"  {', '.join(facts)}")
    steps = [turn.step for turn in episode.turns]
    ordered = steps == sorted(steps) and min(steps, default=0) >= 0
    for index, turn in enumerate(episode.turns):
        number = turn.step if ordered else index
        step = f", step {turn.step}" if turn.step not in (number, -1) else ""
        yield escape_controls(f"[{number}] {turn.role}{f' ({turn.name})' if turn.name else ''}{step}")
        for text in (turn.reasoning, turn.content):
            if text:
                yield _block(text)
        for call in turn.calls:
            yield from _call(call)


def _call(call: Call) -> Iterator[str]:
    took = "" if call.latency_s is None else f" in {call.latency_s:.3g} s"
    yield escape_controls(f"  -> {call.name}{took}")
    if inside := arguments_text(call):
        yield _block(inside)
    if call.error:
        again = call.error[:200] in (call.result or "")[:_MAX_TEXT]  # it stands below
        yield escape_controls(f"  error ({call.error_from}){'' if again else f': {call.error[:200]}'}")
    if call.result is None:
        yield "  <- no result"
    else:
        yield _block(call.result)


def _block(text: str) -> str:
    shown = escape_controls(text[:_MAX_TEXT], lines=True).replace("\n", "\n    ")
    more = f"\n    ... and {len(text) - _MAX_TEXT:,} characters more" if len(text) > _MAX_TEXT else ""
    return f"    {shown}{more}"
