"""How a run ended, in one sentence, and what it was, in one line: both open a diagnosis and a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.runs import RunReader

Json = dict[str, Any]
_ORDER = ("exception", "signal", "vanished", "unknown", "exited", "running", "finished")
"""Ways to end; of several ranks the first of these that one has is shown."""
_SHOWN = ("model", "learning_rate", "beta", "group_size", "git_commit", "host", "accelerators")


def ending_of(reader: RunReader, steps: Sequence[Mapping[str, Any]]) -> Json:
    """Return `how` the run ended (a word of `_ORDER`) and `text`, a sentence; of several ranks the worst
    one's."""
    endings = [(rank, *_of_rank(reader, rank, steps)) for rank in reader.ranks]
    if not endings:
        return {"how": "unknown", "text": ""}
    rank, how, text = min(endings, key=lambda one: _ORDER.index(one[1]))
    return {"how": how, "text": f"rank {rank}: {text}" if len(endings) > 1 and how != "finished" else text}


def _of_rank(reader: RunReader, rank: int, steps: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    last = reader.last_step(rank)
    after = "before its first step" if last is None else f"after step {last}"
    row = reader.end(rank)
    process = reader.processes.get((rank, reader.session_of(rank)))
    if row is not None:
        return _recorded(str(row["reason"]), row["detail"], after, steps)
    if not process:
        return "unknown", f"left no record of its end: it still runs, or stopped {after}"
    name = f"process {process['pid']} on {process['host']}"
    if process["signal_at"]:
        return "signal", f"ended {after} by SIGTERM, at {process['signal_at']}"
    if process["alive"] is None:
        return "unknown", f"left no record of its end ({name}): it still runs, or vanished {after}"
    if process["alive"]:
        return "running", f"{name} is running, {after}"
    how = "is gone and recorded no end (kill -9, out of memory, a crash in C)"
    return "vanished", f"vanished {after}: {name} {how}"


def _recorded(
    reason: str, detail: Mapping[str, Any], after: str, steps: Sequence[Mapping[str, Any]]
) -> tuple[str, str]:
    where = f", at {detail['line']}" if detail.get("line") else ""
    if reason == "exception":
        return "exception", f"ended {after} by an exception, {detail.get('error', 'not recorded')}{where}"
    if reason == "signal":
        return "signal", f"ended {after} by {detail.get('signal', 'a signal')}{where}"
    if reason == "exited":
        return "exited", f"the process exited {after} and did not close the run"
    if bad := steps[-1]["nonfinite"] if steps else {}:
        first = next((row["step"] for row in reversed(steps) if not row["nonfinite"]), None)
        since = f"since step {next(r['step'] for r in steps if first is None or r['step'] > first)}"
        columns = ", ".join(sorted(bad)[:4])
        return "finished", f"finished {after}, with NaN or infinite values {since}: {columns}"
    return "finished", f"finished {after}"


def identity_line(config: Mapping[str, Any]) -> str:
    """Return what the run was in one line: model, settings, code, host; empty where that was not recorded.

    >>> identity_line({"identity": {"model": "m", "beta": 0.0, "git_commit": "0123456789abcdef"}})
    'model m, beta 0.0, git commit 0123456789'
    """
    identity = config.get("identity")
    known = identity if isinstance(identity, Mapping) else {}
    shown = {name: known[name] for name in _SHOWN if known.get(name) not in (None, "")}
    if "git_commit" in shown:
        shown["git_commit"] = str(shown["git_commit"])[:10]
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown.items())


def identity_facts(config: Mapping[str, Any]) -> list[list[str]]:
    """Return the identity as pairs for a page."""
    identity = config.get("identity")
    known = identity if isinstance(identity, Mapping) else {}
    rows: list[list[str]] = []
    for name, value in known.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{key} {item}" for key, item in value.items())
        if value not in (None, "", []):
            rows.append([str(name).replace("_", " "), str(value)])
    return rows
