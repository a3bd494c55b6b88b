"""The run folder on disk. `docs/reference/run-format.md` explains it to a reader; this file is what code
relies on.

    run.json                      {"trimtab_run": 1, "run_id", "created", "trimtab_version", "config"}
    <kind>.r<rank>.s<session>.jsonl

One JSON object a line, append-only, one writer a file. A session is one life of one process: a resume opens
new files and never touches the old ones; `rank_lock` keeps a second live process of a rank apart. NaN and
infinities are written as the literals NaN, Infinity, -Infinity, which Python, DuckDB and pandas read.
`compress_run` turns the files of a finished run into `.jsonl.gz`, one gzip member each; where both are there
the plain one counts.

kind        one row is                                                 written
states      the mergeable state of every slice over steps first..last  at the cadence of `state_block`
readings    all readings of one slice over one closed window           when a window closes
alarms      an alarm fired or cleared                                  when it does
actions     what the guard did or, in a dry run, would have done       after the step's row
tools       one tool call                                              at flush
errors      one failure inside the monitor, with its traceback         when it happens
exemplars   the worst tokens of one slice over one closed window        when a window closes
checkpoints the files of a checkpoint, with the hashes of its weights   when they are hashed
snapshots   answers to fixed prompts, scores of fixed transcripts       when one is taken
series      values of one step by series and slice, with errors         at flush
steps       one flushed step; written last: it commits the others      at flush
end         how the run ended: finished, exception, signal             when it ends; void when steps follow
"""

from __future__ import annotations

import json
import math
import operator
import re
from typing import Any

from trimtab.errors import RunError

FORMAT = 1
KINDS = (
    "states", "readings", "alarms", "actions", "tools", "errors", "exemplars", "checkpoints", "snapshots",
    "series", "steps", "end",
)  # fmt: skip
_NAME = re.compile(rf"^({'|'.join(KINDS)})\.r(\d+)\.s(\d+)\.jsonl(?:\.gz)?$")
FIRST_WORKER = 1_000_000
"""Ranks from here on are rollout workers outside the trainer's group; nobody waits for them."""
CLEAN_ENDS = frozenset({"finished", "closed", "exited"})
"""Reasons of an `end` after which a rank that writes no more is not missed."""
COMPRESSED = ".gz"
MAX_STEP = 2**53  # JSON readers keep whole numbers up to here
MAX_WINDOW_STEPS = 2**24  # of one window or block of steps
REQUIRED: dict[str, dict[str, type | tuple[type, ...]]] = {
    "states": {"first": int, "last": int, "states": str},
    "readings": {"step": int, "first": int, "last": int, "slice": str, "n_tokens": int, "n_trajectories": int, "values": dict,
                 "low": dict, "high": dict, "n": dict, "reasons": dict, "excluded": dict, "reference": dict},
    "alarms": {"event": str, "step": int, "fired": int, "rule": str, "since": int, "severity": str, "slice": str,
               "bound": (int, float), "why": str, "advice": str, "reference": str, "hidden": bool, "evidence": list},
    "actions": {"step": int, "action": str, "policy": str, "note": str, "dry_run": bool, "failure": str, "incident": dict},
    "tools": {"step": int, "name": str, "result_size": (int, float), "latency_s": (int, float)},
    "errors": {"step": int, "time": (int, float), "where": str, "error": str},
    "exemplars": {"step": int, "first": int, "last": int, "slice": str, "tokens": dict},
    "checkpoints": {"step": int, "time": (int, float), "path": str, "files": dict, "position": dict, "settings": dict,
                    "sampler": dict},
    "snapshots": {"step": int, "time": (int, float), "prompts": list, "answers": list, "transcripts": (dict, type(None))},
    "series": {"step": int, "names": list, "slices": list, "numbers": str, "counts": str, "reasons": dict},
    "steps": {"step": int, "time": (int, float), "metrics": dict, "slices": dict, "columns": list, "not_observed": dict,
              "nonfinite": dict, "costs_s": dict, "failed": bool},
    "end": {"step": int, "time": (int, float), "reason": str, "detail": dict, "num_steps": int},
}  # fmt: skip
"""What readers rely on in a row of each kind; a row without it is malformed."""


def file_name(kind: str, rank: int, session: int) -> str:
    """
    >>> file_name("steps", 0, 2)
    'steps.r0.s2.jsonl'
    """
    return f"{kind}.r{rank}.s{session}.jsonl"


def parse_name(name: str) -> tuple[str, int, int] | None:
    """(kind, rank, session) of a data file's name, None for any other file.

    >>> parse_name("steps.r0.s2.jsonl"), parse_name("notes.txt")
    (('steps', 0, 2), None)
    """
    match = _NAME.match(name)
    return (match[1], int(match[2]), int(match[3])) if match else None


def lost_steps(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return the steps that a row of steps or of the end says could not be written; None where it says none."""
    lost = row.get("lost")
    whole = isinstance(lost, dict) and all(
        type(lost.get(key)) is int for key in ("first", "last", "num_steps")
    )
    return lost if whole else None


def lost_steps_text(lost: dict[str, Any]) -> str:
    """
    >>> (lost_steps_text({"first": 40, "last": 44, "num_steps": 5}), lost_steps_text({"first": 7, "last": 7,
    ...     "num_steps": 1}))
    ('steps 40 to 44 (5 in all)', 'step 7')
    """
    first, last, count = (lost[key] for key in ("first", "last", "num_steps"))
    return f"step {first}" if count == 1 else f"steps {first} to {last} ({count} in all)"


def whole_number(name: str, value: Any, minimum: int) -> int:
    """Return an argument of `open_run` as a whole number. Raises RunError for what is none.

    >>> whole_number("rank", 3, 0)
    3
    """
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if not minimum <= number <= MAX_STEP:
        raise RunError(f"{name} is {ascii(value)[:40]}; give a whole number from {minimum}")
    return number


def state_block(step: int, every: int = 1) -> int:
    """Return the number of steps that a stored state covers at `step`.

    It is `every` up to step 2,000 and doubles with each doubling of the step. So the resolution is always a
    thousandth of the run's age and the size grows with its logarithm. The cadence is a function of the step
    alone, equal on all ranks and after a resume.

    Args:
        step: a step, from 0.
        every: steps a state covers at first.

    Returns:
        Number of steps, at least 1.

    Example:
        >>> [state_block(s) for s in (0, 1999, 2000, 4000, 100_000)]
        [1, 1, 2, 4, 64]
    """
    return every * (2 ** int(math.log2(step / 1000)) if step >= 2000 else 1)


def compact(value: Any) -> Any:
    """Floats to seven significant digits (float32's), so that files stay small; NaN and infinities stay what
    they are.

    >>> compact({"x": [0.1234567891, float("inf")]})
    {'x': [0.1234568, inf]}
    """
    if isinstance(value, float):
        return (
            float(f"{value:.7g}") if abs(value) < 1e7 else value
        )  # times keep their digits; NaN and inf pass
    if isinstance(value, dict):
        return {key: compact(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [compact(item) for item in value]
    return value


def dumps(row: dict[str, Any]) -> str:
    """One line of JSON without the newline; any text is kept, control characters escaped."""
    return json.dumps(compact(row), separators=(",", ":"), ensure_ascii=True, default=str)
