"""Duplicate episodes. A copy is dropped; another episode under a name already taken gets one of its own."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from hashlib import blake2b

import msgspec
import numpy as np

from trimtab.traces.core.episode import Episode
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.native.native_format import dump_episode
from trimtab.typing import Array

RENAMED = "episodes under an id already taken, renamed id#2, ..."
DROPPED = "episodes that are copies of one already read, dropped"
REPEATED = (
    "episodes without an id that repeat an earlier one to the letter, kept: attempts may, copies of a file do"
)


class Identities:
    """Remembers the ids of a reading and 8 bytes of each content."""

    def __init__(self) -> None:
        self._seen: dict[str, set[int]] = {}
        self._nameless: set[int] = set()

    def admit(self, episode: Episode, report: ReadReport) -> bool:
        """False for a copy of an episode admitted before. One of other content is renamed `id#2`, `id#3`,
        ...; both are counted.

        Where the log gives no id, the place in it is one. Then nothing tells a copy from another attempt that
        came to the same words, as short answers do: it is kept, and counted."""
        name = self.name_of(episode.id, content_digest(episode), is_nameless(episode), report)
        episode.id = name or episode.id
        return name is not None

    def name_of(self, name: str, digest: int, nameless: bool, report: ReadReport) -> str | None:
        """Return the name under which an episode is admitted; None for a copy."""
        seen = self._seen.setdefault(name, set())
        if digest in seen:
            report.note(DROPPED)
            return None
        if nameless and digest in self._nameless:
            report.note(REPEATED)
        if nameless:
            self._nameless.add(digest)
        seen.add(digest)
        if len(seen) > 1:
            report.note(RENAMED)
            names = (f"{name}#{i}" for i in itertools.count(len(seen)))
            name = next(fresh for fresh in names if fresh not in self._seen)
            self._seen[name] = {digest}
        return name


def is_nameless(episode: Episode) -> bool:
    """Is its place in the log its id, as the log gives none?"""
    return episode.id == episode.source


def content_digest(episode: Episode) -> int:
    """Return 64 bits of the content without its place in the log, which is the id, too, where the log gives
    none."""
    name, source = episode.id, episode.source
    episode.id, episode.source = "" if name == source else name, ""
    try:
        content = _encode(episode)
    except (OverflowError, TypeError, ValueError):  # whole numbers over 64 bits, lone surrogates
        content = dump_episode(episode).encode("ascii")
    episode.id, episode.source = name, source
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little")


_encode = msgspec.msgpack.Encoder().encode


def renamed_episodes(
    names: Sequence[str], digests: Array, nameless: Array, report: ReadReport
) -> dict[int, str | None]:
    """Return the episodes that are not admitted under their own names: number -> new name, None for a copy.

    Args:
        names: (E,) ids, in the order of the log.
        digests: (E,) of `content_digest`.
        nameless: (E,) bool, of `is_nameless`.
        report: where both are counted.

    Returns:
        What `Identities.admit` would do, at the cost of the ids that come again only.
    """
    bases = np.array([hash(name.partition("#")[0]) for name in names], np.int64)
    again = _repeated(bases) | (nameless & _repeated(np.where(nameless, digests, np.uint64(0))))
    identities, changed = Identities(), dict[int, str | None]()
    for i in np.flatnonzero(again).tolist():
        name = identities.name_of(names[i], int(digests[i]), bool(nameless[i]), report)
        if name != names[i]:
            changed[i] = name
    return changed


def _repeated(values: Array) -> Array:
    """(E,) is the value that of another, too?"""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    again: Array = counts[inverse] > 1
    return again
