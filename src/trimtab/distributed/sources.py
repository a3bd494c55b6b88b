"""What a source of shards is, and the options of merging."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from trimtab.distributed.shard import Shard
from trimtab.errors import RunError

WAYS = ("folder", "store", "gloo")
"""How shards reach the rank that merges."""


class Source(Protocol):
    """Brings the shards of the other ranks to the rank that merges. No method waits for a rank."""

    def put(self, shard: Shard) -> None:
        """Hand over this rank's shard; the leading rank thereby shows that it lives. A source that reads what
        the run store has written anyway does nothing."""

    def poll(self) -> Iterable[Shard]:
        """Return the shards that arrived since the last call, those of a rank in their order."""

    def is_current(self) -> bool:
        """Return whether the last poll would have seen another rank's shard. While not, nothing is known of
        the others, and none is silent."""

    def failure(self) -> str:
        """Return why nothing arrives any more; empty while all is well."""

    def close(self) -> None:
        """Release what the source holds; shards under way may be lost."""


@dataclass(frozen=True)
class MergeOptions:
    """How the readings of a job's ranks are merged while it runs.

    Example:
        >>> MergeOptions(ranks=4, lag=3).way
        'folder'
    """

    # how shards travel: "folder" (the shared run folder), "store" (a store of torch.distributed) or "gloo" (a
    # group of our own beside the trainer's)
    way: str = "folder"
    # processes of the trainer's group; None: as the environment says
    ranks: int | None = None
    # rank that merges and decides
    leader: int = 0
    # steps that a step waits for a rank; then it is merged without it, which is recorded
    lag: int = 4
    # steps from the one that a decision rests on being made to the one it is applied at, on all ranks
    delay: int = 2
    # seconds of one step that merging may take; what is left is merged at the next one
    budget_s: float = 0.2
    # seconds that `close` waits for the last shards of the others
    end_wait_s: float = 2.0
    # of way "gloo": seconds after which a rank that takes no part has stopped; then the folder is read
    deadline_s: float = 5.0
    # of way "store": a torch.distributed.Store that all ranks reach; of "gloo" it may be left out, and
    # is then the one that torch.distributed was initialised with
    store: Any = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if self.way not in WAYS:
            raise RunError(f"merge: {self.way!r} is not a way of merging; give {', '.join(WAYS)}")
        if self.way == "store" and self.store is None:
            raise RunError("merge: a store is missing; give MergeOptions(way='store', store=TCPStore(...))")
        for name, smallest in (("lag", 1), ("delay", 1), ("leader", 0), ("ranks", 1)):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < smallest):
                raise RunError(f"merge: {name} is {value!r}; give a whole number from {smallest}")
        if self.ranks is not None and self.leader >= self.ranks:
            which = f"a rank from 0 to {self.ranks - 1}" if self.ranks > 1 else "0"
            raise RunError(
                f"merge: leader is {self.leader} of {self.ranks} ranks, so nobody merges; give {which}"
            )
        if not 0.0 < self.budget_s <= 1.0:
            raise RunError(f"merge: budget_s is {self.budget_s!r}; give seconds above 0, at most 1")
        if not 0.5 <= self.deadline_s <= 600.0:
            raise RunError(f"merge: deadline_s is {self.deadline_s!r}; give seconds from 0.5 to 600")

    def config(self) -> dict[str, Any]:
        """Return the options for the run's header."""
        return {name: value for name, value in vars(self).items() if name != "store"}


def merge_options(value: str | MergeOptions | None) -> MergeOptions | None:
    """Return the options of `open_run(merge=...)`: a way by its name, options, or None.

    >>> merge_options("folder") == MergeOptions(), merge_options(None)
    (True, None)
    """
    if value is None or isinstance(value, MergeOptions):
        return value
    if isinstance(value, str):
        return MergeOptions(value)
    raise RunError(f"merge is {value!r}; give 'folder', 'gloo', MergeOptions(...), or None")
