"""Run every probe against a reward function, and keep what each one gave."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trimtab.catalog import bound
from trimtab.errors import RewardError
from trimtab.rewards.answer_formats import FORMATS, UNMARKED, AnswerFormat, FormatScore, best_format, mean_of
from trimtab.rewards.function_process import Call, FunctionProcess
from trimtab.rewards.probe_tasks import ProbeTask
from trimtab.rewards.probe_texts import Variant, right_variants, slow_texts, variants
from trimtab.typing import Float64

_MAX_HANGS = 3
"""Calls without an answer after which the rest is left out: each costs its whole limit."""


@dataclass(frozen=True)
class ProbeOptions:
    """How to probe."""

    timeout_s: float = 20.0  # of one call; after it the process is killed and started anew
    template: str = ""  # the user's own answer format, with {answer} in it
    conversational: bool | None = None  # completions as lists of messages; None finds out


@dataclass(frozen=True)
class ProbeScore:
    """What one variant was paid."""

    family: str
    name: str
    gain: float  # over an honest answer, in units of right minus wrong; NaN where nothing was paid
    reward: float  # mean over tasks
    example: str  # the text of the first task
    error: str = ""


@dataclass
class ProbeRecord:
    """All that a function did under the probes."""

    target: str
    num_tasks: int
    formats: list[FormatScore] = field(default_factory=list)
    chosen: FormatScore | None = None  # the format that tells right from wrong best
    scale: float = float("nan")  # right minus wrong in it; the range of rewards where it does not tell
    ignores_answer: bool = False
    noise: float = 0.0  # largest difference between two calls on one batch
    batch_change: float = 0.0  # largest difference for one completion between two batches
    scores: list[ProbeScore] = field(default_factory=list)
    right_scores: list[ProbeScore] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)  # exception and its first variant
    slow: dict[str, float] = field(default_factory=dict)  # text and seconds
    not_finite: list[str] = field(default_factory=list)  # variants that were paid NaN or infinity
    num_skipped: int = 0  # completions for which it gave None
    num_calls: int = 0
    num_completions: int = 0
    median_s: float = float("nan")  # of a call, by completion
    unfinished: str = ""  # why probes were left out


def run_probes(
    spec: str,
    tasks: Sequence[ProbeTask],
    options: ProbeOptions | None = None,
    progress: Callable[[str], None] | None = None,
) -> ProbeRecord:
    """Probe a reward function in a process of its own.

    Args:
        spec: module:function or path/file.py:function.
        tasks: tasks with answers (`built_in_tasks`, `load_tasks`).
        progress: is given the name of each stage.

    Returns:
        What every probe was paid.

    Raises:
        RewardError: the function cannot be loaded, has arguments we do not know, or fails on honest answers.
    """
    options = options or ProbeOptions()
    with FunctionProcess(spec, options.timeout_s) as process:
        runner = _Runner(process, tasks, ProbeRecord(spec, len(tasks)))
        say = progress or (lambda _stage: None)
        runner.find_convention(options.conversational)
        say("formats")
        runner.score_formats((AnswerFormat("yours", options.template),) if options.template else FORMATS)
        say("repeats")
        runner.repeat()
        say("probes")
        runner.score_variants()
        say("slow texts")
        runner.time_texts()
        runner.record.median_s = float(np.median(runner.seconds)) if runner.seconds else float("nan")
        return runner.record


class _Runner:
    """State of one run of probes."""

    def __init__(self, process: FunctionProcess, tasks: Sequence[ProbeTask], record: ProbeRecord) -> None:
        self.process, self.tasks, self.record = process, tasks, record
        self.seconds: list[float] = []
        self.hangs = 0

    def find_convention(self, conversational: bool | None) -> None:
        """Call with texts, then with messages; RewardError where neither works."""
        texts = [FORMATS[1].fill(task.answer) for task in self.tasks]
        failures = []
        for messages in (False, True) if conversational is None else (conversational,):
            self.process.conversational = messages
            call = self._call(texts)
            if not call.error:
                return
            failures.append(call.error)
            if call.kind == "result":
                break
        raise RewardError(f"{self.record.target} fails on honest answers: {failures[0]}")

    def score_formats(self, formats: Sequence[AnswerFormat]) -> None:
        """Score right and wrong answers in each format and choose one."""
        record = self.record
        for one in formats:
            if "{answer}" not in one.template:
                raise RewardError(
                    f"--template {one.template!r} has no place for the answer; write {{answer}} in it"
                )
            right = self._rewards("honest", one.name, [one.fill(t.answer) for t in self.tasks])
            wrong = self._rewards("honest", one.name, [one.fill(t.wrong[0]) for t in self.tasks])
            record.formats.append(FormatScore(one, right, wrong))
        paid = np.concatenate([np.concatenate([s.right, s.wrong]) for s in record.formats])
        paid = paid[np.isfinite(paid)]
        if not paid.size:
            unread = "every number is NaN or infinite" if record.not_finite else "it skips every task (None)"
            why = next(iter(record.errors), unread)
            raise RewardError(
                f"{record.target} gives no honest answer a number: {why}; "
                "give tasks whose answers it can read (--dataset)"
            )
        record.chosen = best_format(record.formats)
        spread = float(np.ptp(paid))
        record.ignores_answer = not record.chosen.gap > 1e-9 + 0.02 * spread
        record.scale = record.chosen.gap if not record.ignores_answer else (spread or 1.0)

    def repeat(self) -> None:
        """Call on one batch three times, then in reverse, one by one and beside other completions."""
        chosen = self._chosen()
        texts = [
            chosen.format.fill(task.answer if i % 2 else task.wrong[0]) + " ." * (i % 3)
            for i, task in enumerate(self.tasks)
        ]
        count = len(texts)
        first, *others = (self._rewards("repeat", "repeats", texts) for _ in range(3))
        self.record.noise = max(_difference(first, other) for other in others) / self.record.scale
        order = list(range(count))
        reverse = self._rewards("repeat", "reversed", texts[::-1], order[::-1])[::-1]
        alone = np.concatenate([self._rewards("repeat", "alone", [texts[i]], [i]) for i in order])
        doubled = [*texts, *(chosen.format.fill(task.answer) * 3 for task in self.tasks)]
        beside_others = self._rewards("repeat", "with others", doubled, order * 2)[:count]
        moves = [_difference(first, other) for other in (reverse, alone, beside_others)]
        self.record.batch_change = max(moves) / self.record.scale

    def score_variants(self) -> None:
        """Pay every variant."""
        chosen = self._chosen()
        unmarked = [s.wrong for s in self.record.formats if s.format.name in UNMARKED]
        honest = {
            "wrong": chosen.wrong,
            "right": chosen.right,
            "unmarked": np.fmax.reduce(unmarked) if unmarked else chosen.wrong,
        }
        for make, scores in ((variants, self.record.scores), (right_variants, self.record.right_scores)):
            for rows in zip(*(list(make(task, chosen.format)) for task in self.tasks), strict=True):
                if self._stopped():
                    return
                scores.append(self._score(rows, honest))

    def _score(self, rows: Sequence[Variant], honest: dict[str, Float64]) -> ProbeScore:
        family, name, texts, against = rows[0]
        errors = len(self.record.errors)
        paid = [self._rewards(family, name, [row.texts[i] for row in rows]) for i in range(len(texts))]
        lowest = np.minimum.reduce(paid)
        gain = mean_of(lowest - honest[against]) / self.record.scale
        error = list(self.record.errors)[-1] if len(self.record.errors) > errors else ""
        return ProbeScore(family, name, gain, mean_of(lowest), texts[0], error)

    def time_texts(self) -> None:
        """Time texts that are hard on patterns and parsers, in the format and bare."""
        fill = self._chosen().format.fill
        for name, text in slow_texts().items():
            for shown in (text, fill(text)):
                if self._stopped():
                    return
                call = self._call([shown], [0])
                self._note(call, "latency", name)
                usual = float(np.median(self.seconds)) * len(self.tasks)
                limit = max(bound("probe_seconds"), bound("probe_slow_ratio") * usual)
                if not call.error and call.seconds > max(limit, self.record.slow.get(name, 0.0)):
                    self.record.slow[name] = call.seconds

    def _rewards(
        self, family: str, name: str, texts: Sequence[str], indices: Sequence[int] | None = None
    ) -> Float64:
        """Rewards of one call; NaN where it failed, skipped, or gave what is not finite."""
        if self._stopped():
            return np.full(len(texts), np.nan)
        call = self._call(texts, indices)
        self._note(call, family, name)
        if call.error:
            return np.full(len(texts), np.nan)
        self.record.num_skipped += sum(value is None for value in call.rewards)
        values = np.array([np.nan if v is None else v for v in call.rewards], np.float64)
        numbers = [v for v in call.rewards if v is not None]
        if not np.isfinite(numbers).all():
            self.record.not_finite.append(f"{family}: {name}")
        return np.where(np.isfinite(values), values, np.nan)

    def _note(self, call: Call, family: str, name: str) -> None:
        if call.kind == "timeout":
            self.hangs += 1
            self.record.slow[name] = call.seconds
        elif call.error:
            self.record.errors.setdefault(call.error, f"{family}: {name}")

    def _call(self, texts: Sequence[str], indices: Sequence[int] | None = None) -> Call:
        rows = [self.tasks[i] for i in (indices if indices is not None else range(len(self.tasks)))]
        names = sorted(set.intersection(*(set(task.columns) for task in self.tasks)))
        columns: dict[str, list[Any]] = {name: [task.columns[name] for task in rows] for name in names}
        start = time.perf_counter()
        call = self.process.call([task.prompt for task in rows], texts, columns)
        self.record.num_calls += 1
        self.record.num_completions += len(texts)
        if not call.error:
            self.seconds.append((time.perf_counter() - start) / len(texts))
        return call

    def _stopped(self) -> bool:
        if self.hangs >= _MAX_HANGS:
            self.record.unfinished = f"{self.hangs} calls did not answer in {self.process.timeout_s:g} s"
        return bool(self.record.unfinished)

    def _chosen(self) -> FormatScore:
        assert self.record.chosen is not None
        return self.record.chosen


def _difference(a: Float64, b: Float64) -> float:
    """Largest difference of two lists of rewards; 0 where neither has numbers."""
    apart = np.abs(a - b)
    return float(np.nanmax(apart)) if np.isfinite(apart).any() else 0.0
