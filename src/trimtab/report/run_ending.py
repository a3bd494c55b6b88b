"""How a run ended, in one sentence, and what it was, in one line: both open a diagnosis and a page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from trimtab.report.control_characters import escape_controls
from trimtab.runs import RunReader
from trimtab.runs.schema import lost_steps, lost_steps_text

Json = dict[str, Any]
_ORDER = ("exception", "signal", "vanished", "unknown", "exited", "running", "finished")
"""Ways to end; of several ranks the first of these that one has is shown."""
_SHOWN = ("model", "learning_rate", "beta", "group_size", "git_commit", "host", "accelerators", "command")
_NAMES = {
    "lr": "learning_rate",
    "model_name": "model",
    "model_name_or_path": "model",
    "num_generations": "group_size",
}
"""Keys of a loop's own config -> the facts they are."""
_MAX_COMMAND = 60  # characters of the command in one line


def ending_of(reader: RunReader, steps: Sequence[Mapping[str, Any]]) -> Json:
    """Return `how` the run ended (a word of `_ORDER`), `text`, a sentence, and the `rank`: of several the
    worst one."""
    endings = [(rank, *_of_rank(reader, rank, steps)) for rank in reader.ranks]
    if not endings:
        return {"how": "unknown", "text": "", "rank": 0}
    rank, how, text = min(endings, key=lambda one: _ORDER.index(one[1]))
    shown = f"rank {rank}: {text}" if len(endings) > 1 and how != "finished" else text
    return {"how": how, "text": shown, "rank": rank}


def post_mortem_head(record: Mapping[str, Any] | None) -> list[str]:
    """Return the head of a diagnosis of a run that ended badly: how, what to try first, and how to go on.

    >>> post_mortem_head(None)
    []
    """
    if record is None:
        return []
    first, last = record["try_first"][0], record["try_first"][-1]
    lines = [f"POST-MORTEM, {record['headline']}", f"  try first: {first['do']} ({first['because']})"]
    if last is not first:
        lines.append(f"  then: {shlex.join(last['command']) or last['do']}")
    return [escape_controls(line) for line in lines]


def _of_rank(reader: RunReader, rank: int, steps: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    last, row, session = reader.last_step(rank), reader.end(rank), reader.session_of(rank)
    if row is not None:
        return _recorded(row, last, steps)
    after, end = _after(last), reader.file("end", rank, session)
    process = reader.processes.get((rank, session))
    fails = (rank, session) in reader.failed
    damaged = bool(end.malformed or end.torn or end.num_lost or not reader.has_file("end", rank, session))
    if not process:
        unread = reader.file("steps", rank, session).numbered and damaged
        what = "left an end that cannot be read" if unread else "left no record of its end"
        return "unknown", f"{what}: it still runs, or stopped {after}"
    name = f"process {process['pid']} on {process['host']}"
    unwritten = ", which cannot write its record (disk full, or not writable)" if fails else ""
    if process["signal_at"]:
        return "signal", f"ended {after} by SIGTERM, at {process['signal_at']}"
    if process["alive"] is None:
        return "unknown", f"left no record of its end ({name}{unwritten}): it still runs, or vanished {after}"
    if process["alive"]:
        return (
            "running",
            f"{name}{unwritten}, is running, {after}" if fails else f"{name} is running, {after}",
        )
    if fails:
        known = f"vanished {after}, the last one it could write" if last is not None else f"vanished {after}"
        how = "could not write how it ended (disk full, or not writable)"
        return "vanished", f"{known}: {name} is gone and {how}"
    if damaged:
        return "unknown", f"stopped {after} or later: {name} is gone, and its end cannot be read"
    how = "is gone and recorded no end (kill -9, out of memory, a crash in C)"
    return "vanished", f"vanished {after}: {name} {how}"


def _after(step: int | None) -> str:
    return "before its first step" if step is None else f"after step {step}"


def _recorded(row: Json, last: int | None, steps: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """How a rank ended by its row of `end`; `last`: the last step of it that was read."""
    reason, detail, lost = row["reason"], row["detail"], lost_steps(row)
    final = max(row["step"], lost["last"] if lost else -1)
    after = _after(last if final < 0 else final)
    missing = f"; it could not write {lost_steps_text(lost)}" if lost else ""
    cut = row["step"] >= 0 and (last is None or last < row["step"])
    if cut:
        missing += f"; the record holds {'none of its steps' if last is None else f'its steps up to {last}'}"
    where = f", at {detail['line']}" if detail.get("line") else ""
    if reason == "exception":
        error = detail.get("error", "not recorded")
        return "exception", f"ended {after} by an exception, {error}{where}{missing}"
    if reason == "signal":
        return "signal", f"ended {after} by {detail.get('signal', 'a signal')}{where}{missing}"
    if reason == "exited":
        return "exited", f"exited {after} and did not close the run{missing}"
    return "finished", f"finished {after}{_nonfinite(steps, bool(missing))}{missing}"


def _nonfinite(steps: Sequence[Mapping[str, Any]], cut: bool) -> str:
    """Which columns of the last step hold NaN, and since when; `cut`: steps after it are not known."""
    bad = set(steps[-1]["nonfinite"]) if steps else set()
    if not bad:
        return ""
    streak = takewhile(lambda step: bad & step["nonfinite"].keys(), reversed(steps))
    *_, first = (step["step"] for step in streak)
    when = f"from step {first} to {steps[-1]['step']}, the last one read" if cut else f"since step {first}"
    return f", with NaN or infinite values {when}: {', '.join(sorted(bad)[:4])}"


def identity_of(config: Mapping[str, Any]) -> Json:
    """Return what the run was as recorded: its identity, and those facts of it that its own config gives."""
    identity = config.get("identity")
    named = {_NAMES.get(name, name): value for name, value in config.items()}
    own = {name: named[name] for name in _SHOWN if isinstance(named.get(name), (str, int, float))}
    recorded = dict(identity) if isinstance(identity, Mapping) else {}
    return own | {
        name: value for name, value in recorded.items() if value not in (None, "") or name not in own
    }


def identity_line(config: Mapping[str, Any]) -> str:
    """Return what the run was in one line: model, settings, code, host; empty where that was not recorded.

    >>> identity_line({"identity": {"model": "m", "git_commit": "0123456789abcdef"}, "lr": 1e-6})
    'model m, learning rate 1e-06, git commit 0123456789'
    """
    known = identity_of(config)
    shown = {name: known[name] for name in _SHOWN if known.get(name) not in (None, "")}
    for name, length in (("git_commit", 10), ("command", _MAX_COMMAND)):
        if name in shown:
            shown[name] = str(shown[name])[:length]
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown.items())


def identity_facts(identity: Any) -> list[list[str]]:
    """Return the identity as pairs of a name and a text."""
    rows: list[list[str]] = []
    for name, value in identity.items() if isinstance(identity, Mapping) else ():
        if isinstance(value, Mapping):
            value = ", ".join(f"{key} {item}" for key, item in value.items())
        if value not in (None, "", []):
            rows.append([str(name).replace("_", " "), str(value)])
    return rows
