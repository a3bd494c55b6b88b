"""compare_snapshots: what changed between two snapshots, paired by prompt and transcript, with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trimtab.catalog import bound
from trimtab.snapshots.answer_traits import TRAITS, traits_of
from trimtab.snapshots.paired_tests import PairedTest, holm, mcnemar, resampled, sign_flip
from trimtab.snapshots.snapshot_records import Snapshot, TranscriptScores
from trimtab.typing import Bool, Float64

SLICES = ("text", "post_tool")
_QUANTILES = ((0.95, "p95"), (0.99, "p99"))


@dataclass(frozen=True)
class TraitChange:
    """One trait in one slice (all, text, post_tool), before and after."""

    trait: str
    slice: str
    unit: str
    before: float
    after: float
    difference: float
    low: float
    """Lower end of the 95 % interval of the difference, not corrected."""
    high: float
    p: float
    p_holm: float
    """p over all tests of the comparison (Holm)."""
    n: int
    """Pairs: prompts, or transcripts."""

    @property
    def changed(self) -> bool:
        """Whether the change is beyond chance after the correction."""
        return self.p_holm < bound("snapshot_level")


@dataclass(frozen=True)
class LogprobDrift:
    """|difference| of the log-probabilities of one slice's tokens of the fixed transcripts, in nats."""

    slice: str
    statistic: str
    """"mean", "p95" or "p99"."""
    value: float
    low: float
    high: float
    num_tokens: int
    num_transcripts: int


@dataclass(frozen=True)
class ChangedAnswer:
    """One prompt with a very different answer."""

    prompt: str
    before: str
    after: str
    traits: tuple[str, ...]
    """Yes-or-no traits that turned, as "+refusal" or "-json"."""


@dataclass(frozen=True)
class SnapshotComparison:
    """What `compare_snapshots` returns."""

    before: int
    after: int
    num_pairs: int
    changes: tuple[TraitChange, ...]
    drift: tuple[LogprobDrift, ...]
    examples: tuple[ChangedAnswer, ...]
    notes: tuple[str, ...]

    @property
    def num_tests(self) -> int:
        """Tests that the correction counts."""
        return sum(not math.isnan(change.p) for change in self.changes)


def compare_snapshots(before: Snapshot, after: Snapshot) -> SnapshotComparison:
    """Compare two snapshots of a run, prompt by prompt and transcript by transcript.

    Args:
        before: The earlier one, or the one to compare with.
        after: The other one.

    Returns:
        Changes of traits with intervals and p values (McNemar's exact test for yes or no, sign flips for
        numbers), Holm's
            correction over all of them, the drift of log-probabilities, and up to three prompts whose
            answers turned.

    Example:
        >>> from trimtab.snapshots.snapshot_records import Answer, SnapshotPrompt
        >>> one = tuple(SnapshotPrompt(f"question {i}") for i in range(8))
        >>> keys = tuple(prompt.key for prompt in one)
        >>> old = Snapshot(0, one, keys, tuple(Answer(f"It is {i}.", 4) for i in range(8)))
        >>> new = Snapshot(9, one, keys, tuple(Answer("I cannot help with that.", 6) for _ in range(8)))
        >>> [c.trait for c in compare_snapshots(old, new).changes if c.p < 0.05]
        ['refusal', 'length']
    """
    pairs = _pairs(before, after)
    notes = []
    if len(pairs) < max(len(before.answers), len(after.answers)):
        notes.append(f"{len(pairs)} prompts are in both snapshots; the others are left out")
    rows = [row for name in ("all", *SLICES) for row in _trait_rows(before, after, pairs, name)]
    scored, note = _comparable(before.scores, after.scores)
    if note:
        notes.append(note)
    drift: tuple[LogprobDrift, ...] = ()
    if scored is not None:
        rows += list(_score_rows(*scored))
        drift = tuple(_drift(*scored))
        broken = int(np.sum(~np.isfinite(scored[0].logprobs) | ~np.isfinite(scored[1].logprobs)))
        if broken:
            notes.append(f"{broken} of {scored[0].logprobs.size} scored tokens are not finite and left out")
    corrected = holm([test.p for *_, test in rows])
    changes = tuple(
        TraitChange(trait, name, unit, b, a, test.difference, test.low, test.high, test.p, p, test.n)
        for (trait, name, unit, b, a, test), p in zip(rows, corrected, strict=True)
    )
    examples = tuple(_examples(before, after, pairs))
    return SnapshotComparison(before.step, after.step, len(pairs), changes, drift, examples, tuple(notes))


_Row = tuple[str, str, str, float, float, PairedTest]


def _pairs(before: Snapshot, after: Snapshot) -> list[tuple[int, int]]:
    """Indices of the same prompts; one that occurs twice is paired in its order."""
    waiting: dict[str, list[int]] = {}
    for i, key in enumerate(after.keys):
        waiting.setdefault(key, []).append(i)
    return [(i, waiting[key].pop(0)) for i, key in enumerate(before.keys) if waiting.get(key)]


def _trait_rows(before: Snapshot, after: Snapshot, pairs: list[tuple[int, int]], name: str) -> Iterator[_Row]:
    """Rows of the answers' traits in one slice; the slices only where prompts are of both kinds."""
    kinds = {before.prompts[i].post_tool for i, _ in pairs}
    mine = [(i, j) for i, j in pairs if name == "all" or before.prompts[i].post_tool == (name == "post_tool")]
    if not mine or (name != "all" and len(kinds) < 2):
        return
    first = traits_of([before.answers[i] for i, _ in mine])
    second = traits_of([after.answers[j] for _, j in mine])
    for trait in TRAITS:
        b, a = first[trait.name], second[trait.name]
        known = np.isfinite(b) & np.isfinite(a)
        if not known.any() or (trait.name != "reward" and not b[known].any() and not a[known].any()):
            continue  # nobody observed it, or no answer of either has it
        test = mcnemar(b[known], a[known]) if trait.binary else sign_flip(a[known] - b[known])
        if trait.name == "shared_answer":  # depends on the other prompts: shown, and not tested
            test = PairedTest(test.difference, math.nan, math.nan, math.nan, test.n)
        yield trait.name, name, trait.unit, float(b[known].mean()), float(a[known].mean()), test


def _comparable(
    before: TranscriptScores | None, after: TranscriptScores | None
) -> tuple[tuple[TranscriptScores, TranscriptScores] | None, str]:
    if before is None or after is None:
        return None, "" if before is after else "one of the two has no scored transcripts: no drift"
    same = before.name == after.name and np.array_equal(before.lengths, after.lengths)
    if not same:
        return None, "the two scored different transcripts: no drift"
    return (before, after), ""


def _in_slice(scores: TranscriptScores, name: str) -> Bool:
    return scores.post_tool if name == "post_tool" else ~scores.post_tool


def _score_rows(before: TranscriptScores, after: TranscriptScores) -> Iterator[_Row]:
    """Mean entropy and mean log-probability of each transcript, by slice."""
    for name in SLICES:
        inside = _in_slice(before, name)
        for trait, b, a in (
            ("entropy", before.entropy, after.entropy),
            ("logprob", before.logprobs, after.logprobs),
        ):
            if b is None or a is None:
                continue
            known = inside & np.isfinite(b) & np.isfinite(a)
            x, y = (np.array([g.mean() for g in _by_transcript(before, v, known)]) for v in (b, a))
            if x.size:
                yield trait, name, "nats", float(x.mean()), float(y.mean()), sign_flip(y - x)


def _by_transcript(scores: TranscriptScores, values: Float64, known: Bool) -> list[Float64]:
    groups = np.split(
        values[known], np.cumsum(np.bincount(scores.owner[known], minlength=len(scores.lengths)))[:-1]
    )
    return [group for group in groups if group.size]


def mean_entropy(scores: TranscriptScores | None, name: str) -> float:
    """Return the mean entropy of one slice over transcripts; nan where not known."""
    if scores is None or scores.entropy is None:
        return math.nan
    groups = _by_transcript(scores, scores.entropy, _in_slice(scores, name) & np.isfinite(scores.entropy))
    return float(np.mean([group.mean() for group in groups])) if groups else math.nan


def _drift(before: TranscriptScores, after: TranscriptScores) -> Iterator[LogprobDrift]:
    size = np.abs(after.logprobs - before.logprobs)
    for name in SLICES:
        groups = _by_transcript(before, size, _in_slice(before, name) & np.isfinite(size))
        if not groups:
            continue
        tokens = np.concatenate(groups)
        counts = tokens.size, len(groups)
        yield LogprobDrift(name, "mean", float(tokens.mean()), *resampled(groups, "mean"), *counts)
        for q, label in _QUANTILES:
            yield LogprobDrift(
                name, label, float(np.quantile(tokens, q)), *resampled(groups, "quantile", q), *counts
            )


def drift_of(before: Snapshot, after: Snapshot, q: float | None = None) -> float:
    """Return the mean, or a quantile, of |difference| of log-probabilities over all scored tokens; nan
    where none compare.

    Args:
        before: One snapshot.
        after: Another one.
        q: A quantile in (0, 1); None: the mean.

    Returns:
        Nats.

    Example:
        >>> drift_of(Snapshot(0, (), (), ()), Snapshot(9, (), (), ()))
        nan
    """
    scored, _ = _comparable(before.scores, after.scores)
    if scored is None:
        return math.nan
    size = np.abs(scored[1].logprobs - scored[0].logprobs)
    size = size[np.isfinite(size)]
    if not size.size:
        return math.nan
    return float(size.mean() if q is None else np.quantile(size, q))


def _examples(before: Snapshot, after: Snapshot, pairs: list[tuple[int, int]]) -> Iterator[ChangedAnswer]:
    """Up to three prompts, those with the most yes-or-no traits that turned first."""
    if not pairs:
        return
    first = traits_of([before.answers[i] for i, _ in pairs])
    second = traits_of([after.answers[j] for _, j in pairs])
    turned: list[tuple[int, int, list[str]]] = []
    for at in range(len(pairs)):
        changes = [
            ("+" if second[t.name][at] > first[t.name][at] else "-") + t.name
            for t in TRAITS
            if t.binary
            and np.isfinite(first[t.name][at] + second[t.name][at])
            and first[t.name][at] != second[t.name][at]
        ]
        if changes:
            turned.append((-len(changes), at, changes))
    for _, at, changes in sorted(turned)[:3]:
        i, j = pairs[at]
        yield ChangedAnswer(
            before.prompts[i].text, before.answers[i].text, after.answers[j].text, tuple(changes)
        )
