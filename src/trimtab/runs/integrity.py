"""Is the record of a run whole? What was lost, which ranks failed, vanished or are missing.

A damage makes a run blind until `damage_steps` whole steps of the rank follow it; after that it is still
stated as a loss. Losing more than `failed_frac` of the steps makes it blind for good.
"""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass
from itertools import islice, pairwise, product

from trimtab.catalog import bound
from trimtab.runs.beat_files import stopped_ranks
from trimtab.runs.reader import Row, RowFile, RunReader
from trimtab.runs.schema import FIRST_WORKER, KINDS, lost_steps, lost_steps_text

_MAX_RANKS = 8  # named of those that are missing
_MAX_INTERVALS = 1_000  # steps whose duration is looked at


@dataclass(frozen=True)
class Integrity:
    """What `integrity` returns."""

    gaps: tuple[str, ...]  # why nothing can be said of the run now
    losses: tuple[str, ...]  # what is missing, of old too
    failed_since: bool  # the monitor failed after the last step that it could write


def integrity(reader: RunReader) -> Integrity:
    """Return whether the record is whole, by what was read so far and this machine's clock."""
    recent: Counter[str] = Counter()
    losses: Counter[str] = Counter()
    gaps: list[str] = []
    sessions = sorted({(rank, session) for _, rank, session in reader.files})
    for kind, (rank, session) in product(KINDS, sessions):
        for what, count, steps_after in _damages(reader, kind, rank, session):
            losses[what] += count
            recent[what] += count if steps_after < bound("damage_steps") else 0
    damages = [_counted(what, count) for what, count in sorted(recent.items()) if count]
    texts = [_counted(what, count) for what, count in sorted(losses.items())]
    texts += [
        f"rank {rank} could not write {lost_steps_text(lost)}"
        for (kind, rank, _), file in sorted(reader.files.items())
        if kind in ("steps", "end")
        for row in file.rows
        if (lost := lost_steps(row)) is not None
    ]
    num_lost, num_read = losses["row of steps"], len(reader.rows("steps"))
    if not recent["row of steps"] and num_lost > bound("failed_frac") * (num_lost + num_read):
        damages.append(f"{num_lost} of {num_lost + num_read} steps are not in the record")
    for rank, session in sorted(reader.failed):
        if session == reader.session_of(rank):
            gaps.append(
                f"rank {rank} cannot write its record (disk full, or not writable): what it saw is lost"
            )
        else:
            texts.append(f"session {session} of rank {rank} ended while it could not write")
    for rank in _trainers(reader):
        if text := _unmerged(reader, rank):
            (gaps if reader.end(rank) is None else texts).append(text)
    gaps += damages + _missing_ranks(reader) + [*stopped_texts(reader).values()] + _vanished(reader)
    return Integrity(tuple(dict.fromkeys(gaps)), tuple(texts), _failed_since(reader))


def _counted(what: str, count: int) -> str:
    noun, _, rest = what.partition(" ")
    return f"{count} {noun}{'s' * (count != 1)} {rest} {'cannot be read' if noun == 'line' else 'lost'}"


def _damages(reader: RunReader, kind: str, rank: int, session: int) -> list[tuple[str, int, int]]:
    """What is damaged in one file, or missing with it: in words, how many lines or rows, and the whole steps
    that followed."""
    file = reader.file(kind, rank, session)
    steps, lost = reader.file("steps", rank, session), f"row of {kind}"
    later = sum(
        len(other.rows)
        for (k, r, s), other in reader.files.items()
        if k == "steps" and r == rank and s > session
    )

    def steps_after(number: int) -> int:
        if kind == "steps":
            return later + sum(bool(row.get("q", -1) > number) for row in file.rows)
        covering = sum(_count(row, kind) > number for row in steps.rows)
        return later + max(0, covering - 1)

    damages: list[tuple[str, int, int]] = []
    last = max(file.damaged_at, default=0)
    if file.malformed:
        damages.append(("line of the run folder", file.malformed, steps_after(last)))
    if file.num_lost:
        damages.append((lost, file.num_lost, steps_after(last)))
    if kind != "steps":
        counts = [row["n"] for row in steps.rows[: steps.num_settled] if type(row.get("n")) is dict]
        written = max((int(count.get(kind) or 0) for count in counts), default=0)
        if written > file.num_known:
            damages.append((lost, written - file.num_known, steps_after(written - 1)))
    else:
        others = [o for (k, r, s), o in reader.files.items() if (r, s) == (rank, session) and k != "steps"]
        begun = max((other.num_steps for other in others), default=0)
        if begun > file.num_known:
            damages.append((lost, begun - file.num_known, later))
    return damages


def _count(row: Row, kind: str) -> int:
    """How many rows of a kind were written before a row of `steps`."""
    counts = row.get("n")
    return int(counts.get(kind) or 0) if isinstance(counts, dict) else 0


def absent_ranks(reader: RunReader) -> dict[str, str]:
    """Return the ranks of which nothing is in the record, as one text -> why, by the number of processes."""
    config = reader.header["config"]
    expected = next((n for n in (config.get("ranks"), config.get("world_size")) if type(n) is int), 0)
    missing = expected - len(_trainers(reader))
    if missing <= 0:
        return {}
    why = f"of {expected} processes; nothing was written here: the files are missing, or were never made"
    return {f"{'ranks' if missing > 1 else 'rank'} {_some_ranks(reader, expected)}": why}


def _trainers(reader: RunReader) -> list[int]:
    """Ranks of the trainer's group that have written; nobody waits for the others."""
    return [rank for rank in reader.ranks if rank < FIRST_WORKER]


def _some_ranks(reader: RunReader, expected: int) -> str:
    """The first of the ranks below `expected` that have no rows."""
    ranks = _trainers(reader)
    missing = (str(rank) for rank in range(expected) if rank not in ranks)
    more = expected - len(ranks) - _MAX_RANKS
    return ", ".join(islice(missing, _MAX_RANKS)) + (f" and {more} more" if more > 0 else "")


def _missing_ranks(reader: RunReader) -> list[str]:
    """Ranks that have written nothing, or stopped while others went on."""
    gaps: list[str] = []
    ranks, config = _trainers(reader), reader.header["config"]
    last = {rank: reader.last_step(rank) for rank in ranks}
    newest = max((step for step in last.values() if step is not None), default=-1)
    expected = config.get("ranks") or (config.get("world_size") if len(ranks) > 1 else None)
    if isinstance(expected, int) and newest >= 0 and len(ranks) < expected:
        names = _some_ranks(reader, expected)
        gaps.append(f"{expected - len(ranks)} of {expected} ranks have written nothing: {names}")
    absent = [str(rank) for rank in sorted(reader.opened - set(ranks)) if rank < FIRST_WORKER]
    if newest >= 0 and absent and not gaps:
        gaps.append(f"rank {', '.join(absent)} opened this folder, and none of its rows is here")
    for rank, step in last.items():
        if newest - (-1 if step is None else step) > bound("silent_rank"):
            where = "has flushed no step" if step is None else f"stopped at step {step}"
            gaps.append(f"rank {rank} {where}, others are at {newest}")
    return gaps


def stopped_texts(reader: RunReader) -> dict[int, str]:
    """Return rank -> how long it has given no sign of life, of ranks whose processes have stopped while
    others run."""
    return {
        rank: f"rank {rank} has given no sign of life for {age_s:.0f} s while other ranks do"
        for rank, age_s in stopped_ranks(reader.folder).items()
        if rank not in reader.ranks or reader.end(rank) is None
    }


def _unmerged(reader: RunReader, rank: int) -> str:
    """Why a leading rank could not see the steps of the others at the end of its record; empty where it
    could."""
    first, why = -1, ""
    for row in reversed(reader.file("steps", rank, reader.session_of(rank)).rows):
        merge = row.get("merge")
        failure = merge.get("failure") if isinstance(merge, dict) else None
        if not failure:
            break
        first, why = int(row["step"]), why or str(failure)
    if not why:
        return ""
    return f"{why}; rank {rank} could not judge the other ranks while it ran, since step {first}"


def _vanished(reader: RunReader) -> list[str]:
    """Ranks without an end that write no more: killed, hung, or on a machine that is gone."""
    silent: list[tuple[int, float, int]] = []
    for rank in _trainers(reader):
        steps = reader.file("steps", rank, reader.session_of(rank))
        age = abs(reader.age_s(rank))  # a file from the future: one of two clocks was set
        if steps.numbered and steps.rows and reader.end(rank) is None and age > _longest_silence_s(steps):
            silent.append((rank, age, int(steps.rows[-1]["step"])))
    if not silent:
        return []
    ranks, ages, last = zip(*silent, strict=True)
    who = "the run" if len(ranks) == len(_trainers(reader)) else f"rank {', '.join(map(str, ranks))}"
    return [
        f"{who} stopped after step {max(last)} without an end: killed, hung, or its machine is gone "
        f"(nothing written for {duration_text(min(ages))})"
    ]


def _longest_silence_s(steps: RowFile) -> float:
    """Seconds without a row after which a run does not write any more, by its own cadence."""
    clocks: list[float] = [row["clock"] for row in steps.rows[-_MAX_INTERVALS:] if "clock" in row]
    intervals = [later - earlier for earlier, later in pairwise(clocks)] or [0.0]
    by_cadence = bound("vanished_steps") * statistics.median(intervals)
    return max(bound("vanished_s"), by_cadence, bound("vanished_longest") * max(intervals))


def _failed_since(reader: RunReader) -> bool:
    """Did the monitor of a rank fail after the last step it could write? By the order of rows, as clocks may
    be set."""
    for rank in reader.ranks:
        session = reader.session_of(rank)
        errors, steps = reader.file("errors", rank, session), reader.file("steps", rank, session)
        if steps.numbered or errors.numbered:
            if any(
                row.get("s", -1) >= steps.next_number and row.get("where") != "open" for row in errors.rows
            ):
                return True
        elif steps.rows and errors.rows:
            moment = steps.rows[-1].get("time", 0.0)
            if any(row.get("time", 0.0) > moment for row in errors.rows):
                return True
    return False


def duration_text(seconds: float) -> str:
    """
    >>> duration_text(90), duration_text(7_200), duration_text(300_000)
    ('90 s', '120 min', '3 days')
    """
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "min")):
        if seconds > 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
