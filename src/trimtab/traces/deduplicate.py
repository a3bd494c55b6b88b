"""Is it the same episode again? A copy is dropped; another episode under a name already taken gets one of its own."""

from __future__ import annotations

import itertools
from hashlib import blake2b

from trimtab.traces.core.episode import Episode
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.native.format import dump_episode

RENAMED = "episodes under an id already taken, renamed id#2, ..."


class Identities:
    """Remembers the ids of a reading and 16 bytes of each content."""

    def __init__(self) -> None:
        self._seen: dict[str, set[bytes]] = {}
        self._nameless: set[bytes] = set()

    def admit(self, episode: Episode, report: ReadReport) -> bool:
        """False for a copy of an episode admitted before. One of other content is renamed `id#2`, `id#3`, ...; both are counted.

        Where the log gives no id, the place in it is one. Then nothing tells a copy from another attempt that came to the same
        words, as short answers do: it is kept, and counted."""
        nameless = episode.id == episode.source
        digest = _digest(episode, nameless)
        seen = self._seen.setdefault(episode.id, set())
        if digest in seen:
            report.note("episodes that are copies of one already read, dropped")
            return False
        if nameless and digest in self._nameless:
            report.note(
                "episodes without an id that repeat an earlier one to the letter, kept: attempts may, copies of a file do"
            )
        if nameless:
            self._nameless.add(digest)
        seen.add(digest)
        if len(seen) > 1:
            report.note(RENAMED)
            names = (f"{episode.id}#{i}" for i in itertools.count(len(seen)))
            episode.id = next(name for name in names if name not in self._seen)
            self._seen[episode.id] = {digest}
        return True


def _digest(episode: Episode, nameless: bool) -> bytes:
    """Of the content without its place in the log, which is the id, too, where the log gives none."""
    name, source = episode.id, episode.source
    episode.id, episode.source = "" if nameless else name, ""
    digest = blake2b(dump_episode(episode).encode("ascii"), digest_size=16).digest()
    episode.id, episode.source = name, source
    return digest
