"""What a run could not observe: for how many of its steps, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from trimtab.measure.state.log_ratios import SAME_POLICY

TOKENS = "tokens"
"""Key under which an adapter says that its trainer gives no token at all, only averages."""

REPEATED = "second flush"
"""Key under which a step says that `flush` was called twice for the one before."""

COLUMNS: Mapping[str, frozenset[str]] = {
    "drift": frozenset({"logprobs", "ref_logprobs"}),
    "total": frozenset({"logprobs", "rollout_logprobs"}),
    "mismatch": frozenset({"old_logprobs", "rollout_logprobs"}),
    "staleness": frozenset({"logprobs", "old_logprobs"}),
    "entropy": frozenset({"entropy"}),
}
"""What is observed -> the columns it needs."""

MAIN = ("drift", "mismatch", "total", "staleness", "reward", "entropy")
"""What a verdict names when it was not observed; the most important first."""

Row = Mapping[str, Any]


class Unobserved:
    """Counts, over the steps of a run, what each of them lacked. A step that lists nothing lacks what its
    columns lack."""

    def __init__(self, steps: Iterable[Row], ranks: Mapping[str, str] | None = None) -> None:
        """Count over `steps`; `ranks`: those whose record is missing -> why."""
        self.num_steps = 0
        self.ranks = dict(ranks or {})
        self.reasons: dict[str, str] = dict(self.ranks)
        self._listed: Counter[str] = Counter()
        self._columns: Counter[frozenset[str]] = Counter()
        lacking_of: dict[tuple[str, ...], frozenset[str]] = {}
        for row in steps:
            self.num_steps += 1
            for what, why in row["not_observed"].items():
                self.reasons[str(what)] = str(why)
                self._listed[str(what)] += 1
            columns = tuple(row["columns"])
            if columns not in lacking_of:
                lacking = {name for name, needs in COLUMNS.items() if not needs <= set(columns)}
                lacking_of[columns] = frozenset(lacking)
            self._columns[lacking_of[columns].difference(row["not_observed"])] += 1
        self._listed.update(dict.fromkeys(self.ranks, self.num_steps))

    def count(self, what: str) -> int:
        """Return the number of steps that lacked `what`."""
        if what not in self.reasons:
            return 0
        return self._listed[what] + sum(n for lacking, n in self._columns.items() if what in lacking)

    @property
    def never(self) -> dict[str, str]:
        """What no step observed -> why."""
        return {what: why for what, why in self.reasons.items() if self.count(what) == self.num_steps}

    @property
    def shown(self) -> dict[str, str]:
        """What some or all steps lacked -> why, with the number of steps where it is not all of them; `never`
        first."""
        never = self.never
        partly = {
            what: f"in {self.count(what)} of {self.num_steps} steps: {why}"
            for what, why in self.reasons.items()
            if what not in never and SAME_POLICY not in why
        }
        same = {what: why for what, why in self.reasons.items() if what not in never and what not in partly}
        return {**never, **dict(sorted(partly.items(), key=lambda item: -self.count(item[0]))), **same}

    @property
    def words(self) -> str:
        """Return the most important names that were not observed, in one line; empty where there are none."""
        counts = {name: self.count(name) for name in MAIN if SAME_POLICY not in self.reasons.get(name, "")}
        partly = {name: f" in {count} of {self.num_steps} steps" for name, count in counts.items()}
        partly |= {name: "" for name, count in counts.items() if count == self.num_steps}
        return ", ".join([*self.ranks, *(f"{name}{partly[name]}" for name, count in counts.items() if count)])

    @property
    def metrics_only(self) -> str:
        """Return why the trainer gives averages only; empty where tokens were, or could have been,
        observed."""
        return self.never.get(TOKENS, "")
