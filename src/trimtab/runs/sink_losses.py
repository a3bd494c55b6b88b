"""What the sinks of a run lost, by its record: steps dropped or failed, numbers refused, a sink that hangs.

A loss in a tracker does not touch the run: its folder has everything. But a person who looks at the
tracker alone must know, so the line stands behind the verdict.
"""

from __future__ import annotations

from typing import Any

from trimtab.runs.reader import RunReader

Json = dict[str, Any]

_SUMMED = ("dropped", "failed", "refused")
_MAX_FAILURE = 120  # characters
_LOSSES = (*_SUMMED, "stuck_s")


def sink_losses(reader: RunReader) -> dict[str, Json]:
    """Return the counts of each sink that lost something, summed over sessions; empty where none did.

    Args:
        reader: of the run folder.

    Returns:
        Sink -> `dropped` and `failed` steps, `refused` numbers, `stuck_s` and the last `failure`.

    Example:
        sink_losses(RunReader("runs/exp1"))  # {"wandb": {"dropped": 12, ...}}
    """
    losses: dict[str, Json] = {}
    for kind, rank, session in sorted(reader.files):
        if kind == "steps":
            for name, counts in _last_counts(reader, rank, session).items():
                if isinstance(counts, dict) and any(counts.get(key) for key in _LOSSES):
                    _add(losses.setdefault(str(name), dict.fromkeys(_SUMMED, 0)), counts)
    return losses


def sink_line(losses: dict[str, Json]) -> str:
    """Return the losses in one sentence; empty where there are none.

    Args:
        losses: as `sink_losses` returns them.

    Returns:
        A sentence.

    Example:
        >>> sink_line({"wandb": {"dropped": 12, "failed": 0, "refused": 0, "stuck_s": 0.0, "failure": ""}})
        'Sink wandb lacks 12 steps (the run folder has them).'
    """
    parts = [f"{name} lacks {_words(counts)}" for name, counts in losses.items()]
    noun = "Sink" if len(parts) == 1 else "Sinks:"
    return f"{noun} {'; '.join(parts)} (the run folder has them)." if parts else ""


def _words(counts: Json) -> str:
    steps = counts["dropped"] + counts["failed"]
    words = [_counted(steps, "step")] if steps or not counts["refused"] else []
    words += [f"{_counted(counts['refused'], 'number')} it cannot hold"] if counts["refused"] else []
    stuck = f", hanging for {counts['stuck_s']:.0f} s" if counts.get("stuck_s") else ""
    failure = f", last failure: {counts['failure'][:_MAX_FAILURE]}" if counts.get("failure") else ""
    return f"{' and '.join(words)}{stuck}{failure}"


def _counted(count: int, noun: str) -> str:
    """
    >>> _counted(1, "step"), _counted(1200, "step")
    ('1 step', '1,200 steps')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _last_counts(reader: RunReader, rank: int, session: int) -> Json:
    """What a session said last: its end where it has one, else its last step that tells of a loss."""
    ends = [row["detail"].get("sinks") for row in reader.file("end", rank, session).rows]
    rows = [row.get("sinks") for row in reader.file("steps", rank, session).rows]
    known = [one for one in (*rows, *ends) if isinstance(one, dict)]
    return dict(known[-1]) if known else {}


def _add(into: Json, counts: Json) -> None:
    for key in _SUMMED:
        into[key] += counts.get(key, 0) if isinstance(counts.get(key, 0), int) else 0
    into["stuck_s"] = counts.get("stuck_s", 0.0)
    into["failure"] = str(counts.get("failure", ""))
