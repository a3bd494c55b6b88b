"""StragglerJudge: which rank is slow in which phase, and since when. R ranks, P phases, W steps."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trimtab.capture.phase_clock import WAITS
from trimtab.catalog import bound
from trimtab.distributed.stragglers.noise_scale import long_run_scale
from trimtab.distributed.stragglers.phase_excess import log_seconds, median_of_others
from trimtab.typing import Bool, Float64, Int64

SPAN = 64
"""Steps that are remembered: noise, ratio and loss are taken of them."""
_RESCALE = 8  # steps between estimates of the noise
_ADAPT = 1 / 128  # of an excess goes into a lone rank's own past
_CAP = 1.5  # times the evidence that names a rank

Basis = Literal["other ranks", "the other rank", "its own past"]


@dataclass(frozen=True)
class SlowPhase:
    """A rank that is slow in a phase, or nearest to it."""

    rank: int
    phase: str
    slow: bool  # the evidence is complete and has not been taken back
    since: int  # step from which on the evidence is for it
    ratio: float  # its seconds over those it is compared with, median of the steps since
    lost_s: float  # seconds a step beyond those, median
    lost_frac: float  # share of the step's time
    basis: Basis


class StragglerJudge:
    """Sums, for each rank and phase, the evidence that it is slow.

    The excess of a rank is the logarithm of its seconds over the median of the other ranks'. A rank is
    healthy up to `straggler_healthy` and slow from `straggler_slow` on, and Page's CUSUM adds up the log
    likelihood ratio of the two. A step adds at most a tenth of what names a rank, so spikes name nobody. The
    noise is long-run (`noise_scale`), so autocorrelated steps are not counted twice.

    A healthy rank exactly at the bound is named at most once in `straggler_arl` steps of all ranks and phases
    together, where noise is normal; ranks under it far more rarely. Phases that wait for other ranks are not
    judged: there the slow rank is the one that waits the shortest time.

    With two ranks the slower one is named: which of them changed is not known. One rank is compared with its
    own first `straggler_past` steps by wider bounds, and says nothing of other ranks.

    Example:
        judge = StragglerJudge()
        for step, times in enumerate(table):
            answers = judge.update(step, times)
            slow = slow if answers is None else [one for one in answers if one.slow]

    Reference:
        Page 1954, Biometrika 41, 100; Lorden 1971, Annals of Mathematical Statistics 42, 1897.
    """

    def __init__(self) -> None:
        self.ranks: list[int] = []
        self.phases: list[str] = []
        self._reset()

    def _reset(self) -> None:
        shape = (len(self.ranks), len(self.phases))
        self._num_steps = 0
        self._excess = np.full((SPAN, *shape), np.nan)
        self._lost = np.full((SPAN, *shape), np.nan)
        self._steps: Int64 = np.full(SPAN, -1, np.int64)
        self._durations = np.full(SPAN, np.nan)
        self._scale = np.full(shape, np.nan)
        self._past = np.full(shape, np.nan)
        self._evidence = np.zeros(shape)
        self._since: Int64 = np.zeros(shape, np.int64)
        self._slow: Bool = np.zeros(shape, bool)

    @property
    def alone(self) -> bool:
        """Is there one rank only, which has nobody to be compared with?"""
        return len(self.ranks) == 1

    def update(
        self,
        step: int,
        times: Mapping[int, Mapping[str, float]],
        *,
        waits: Collection[str] = WAITS,
        duration_s: float = math.nan,
    ) -> list[SlowPhase] | None:
        """Take one step.

        Args:
            step: its number.
            times: rank -> phase -> seconds; a rank or phase that is missing adds nothing.
            waits: phases in which ranks wait for each other.
            duration_s: wall seconds of the step; NaN: the longest sum of a rank's phases.

        Returns:
            What is slow, and of the rest the one with the most evidence; worst first. None between
            answers, which come at every eighth step from `straggler_ready` on and when a rank becomes slow or
            ceases to be.
        """
        self._grow(times)
        seconds = self._table(times)
        if not seconds.size:
            return None
        logs = log_seconds(seconds)
        reference = self._past if self.alone else median_of_others(logs)
        excess = np.where(self._judged(waits), logs - reference, np.nan)
        i = self._num_steps % SPAN
        sums = np.nansum(seconds, axis=1).max()
        self._excess[i] = logs if self.alone and np.isnan(reference).all() else excess
        self._lost[i], self._steps[i] = seconds - np.exp(reference), step
        self._durations[i] = max(duration_s, sums) if math.isfinite(duration_s) else sums
        self._num_steps += 1
        if self.alone:
            self._learn_past(excess)
        before = self._slow
        self._collect(step, excess)
        if self._num_steps % _RESCALE and np.array_equal(before, self._slow):
            return None
        return self._answers()

    def _collect(self, step: int, excess: Float64) -> None:
        """Add the step's evidence; the steps before the first estimate of the noise are added with it."""
        known = bool(np.isfinite(self._scale).any())
        learning = self.alone and np.isnan(self._past).all()
        if self._num_steps % _RESCALE == 0 and self._num_steps >= bound("straggler_ready") and not learning:
            order = np.argsort(self._steps[: self._num_steps])
            recent = self._excess[order] if self._num_steps >= SPAN else self._excess[: self._num_steps]
            self._scale = long_run_scale(recent)
            if not known:
                for j in order if self._num_steps < SPAN else order[-1:]:
                    self._add(int(self._steps[j]), self._excess[j])
                return
        if known:
            self._add(step, excess)

    def _add(self, step: int, excess: Float64) -> None:
        names = ("alone_healthy", "alone_slow") if self.alone else ("straggler_healthy", "straggler_slow")
        healthy, slow = (math.log(bound(name)) for name in names)
        full = self._full
        ratio = (slow - healthy) / self._scale**2 * (excess - (slow + healthy) / 2)
        step_limit = full / bound("straggler_steps")
        gain = np.clip(np.nan_to_num(ratio, nan=0.0), -step_limit, step_limit)
        begins = (self._evidence == 0) & (gain > 0)
        self._since[begins] = step
        self._evidence = np.clip(self._evidence + gain, 0.0, _CAP * full)
        self._slow = (self._slow | (self._evidence >= full)) & (self._evidence > 0)

    @property
    def _full(self) -> float:
        """Evidence that names a rank: one false alarm in `straggler_arl` steps over all ranks and phases."""
        return math.log(bound("straggler_arl") * max(self._scale.size, 1))

    def _answers(self) -> list[SlowPhase] | None:
        if not np.isfinite(self._scale).any():
            return None
        pairs = [(int(r), int(p)) for r, p in np.argwhere(self._slow)]
        rest = np.where(self._slow | np.isnan(self._scale), -1.0, self._evidence)
        if rest.max() >= 0:
            pairs.append(divmod(int(rest.argmax()), len(self.phases)))
        answers = [self._answer(*pair) for pair in pairs]
        return sorted(answers, key=lambda one: (not one.slow, -one.lost_s))

    def _answer(self, r: int, p: int) -> SlowPhase:
        since = int(self._since[r, p]) if self._evidence[r, p] > 0 else int(self._steps.max())
        rows = (self._steps >= since) & np.isfinite(self._excess[:, r, p])
        if not rows.any():
            rows = np.isfinite(self._excess[:, r, p])
        lost = max(float(np.median(self._lost[rows, r, p])), 0.0)
        duration = float(np.median(self._durations[rows]))
        size = len(self.ranks)
        basis: Basis = "its own past" if size == 1 else "the other rank" if size == 2 else "other ranks"
        return SlowPhase(
            self.ranks[r], self.phases[p], bool(self._slow[r, p]), since,
            math.exp(float(np.median(self._excess[rows, r, p]))), lost,
            lost / duration if duration > 0 else 0.0, basis,
        )  # fmt: skip

    def _learn_past(self, excess: Float64) -> None:
        """A lone rank's past: the median of its first steps, which follows slow drift later."""
        if np.isnan(self._past).all():
            if self._num_steps >= bound("straggler_past"):
                self._past = np.nanmedian(self._excess[: self._num_steps], axis=0)
                self._reset_steps()
            return
        move = np.clip(np.nan_to_num(excess, nan=0.0), -0.05, 0.05)
        self._past = self._past + _ADAPT * move

    def _reset_steps(self) -> None:
        """Forget the steps that made a lone rank's past."""
        past = self._past
        self._reset()
        self._past = past

    def _judged(self, waits: Collection[str]) -> Bool:
        """(P,) phases that do not wait for other ranks."""
        return np.array([name not in waits for name in self.phases], bool)

    def _table(self, times: Mapping[int, Mapping[str, float]]) -> Float64:
        """Seconds (R, P), NaN where a rank gives none."""
        rows = (times.get(rank, {}) for rank in self.ranks)
        table = [[row.get(name, math.nan) for name in self.phases] for row in rows]
        return np.array(table, np.float64).reshape(len(self.ranks), len(self.phases))

    def _grow(self, times: Mapping[int, Mapping[str, float]]) -> None:
        """Make room for ranks and phases that were not there before; the second rank begins anew."""
        ranks = sorted(times.keys() - set(self.ranks))
        known = set(self.phases)
        phases = list(dict.fromkeys(name for row in times.values() for name in row if name not in known))
        if not ranks and not phases:
            return
        was_alone = self.alone
        self.ranks += ranks
        self.phases += phases
        if was_alone and ranks:
            self._reset()
            return
        for name in ("_excess", "_lost", "_scale", "_past", "_evidence", "_since", "_slow"):
            old = getattr(self, name)
            filled = np.nan if old.dtype == np.float64 and name != "_evidence" else 0
            pad = [(0, 0)] * (old.ndim - 2) + [(0, len(ranks)), (0, len(phases))]
            setattr(self, name, np.pad(old, pad, constant_values=filled))
