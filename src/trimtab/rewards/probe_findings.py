"""What the probes say about a reward: findings, ranked by what an exploit gains over a wrong answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.catalog import bound
from trimtab.rewards.answer_formats import mean_of
from trimtab.rewards.finding_texts import ADVICE, TITLES
from trimtab.rewards.probe_run import ProbeRecord, ProbeScore
from trimtab.traces.core.plural import counted

SEVERITIES = ("critical", "warning", "info")


@dataclass(frozen=True)
class RewardFinding:
    """One property of a reward that a policy can exploit or that breaks a run."""

    kind: str
    severity: str  # critical, warning or info
    what: str  # in the user's words, with the numbers
    advice: str
    gain: float = math.nan  # over an honest wrong answer, in units of right minus wrong
    variant: str = ""  # the best paid text of the family
    example: str = ""


_OWN_BOUND = {"format": "probe_format_gain", "partial": "probe_partial_gain"}


def findings_of(record: ProbeRecord) -> list[RewardFinding]:
    """Return the findings: severest first, then by what they gain."""
    findings = [*_exploits(record), *_defects(record), *_lost_answers(record)]
    return sorted(findings, key=lambda f: (SEVERITIES.index(f.severity), -_rank(f.gain)))


def _rank(gain: float) -> float:
    return gain if math.isfinite(gain) else 0.0


def _exploits(record: ProbeRecord) -> list[RewardFinding]:
    """The best paid variant of each family, where it gains."""
    findings = []
    inverted = [s for s in record.formats if s.gap <= -bound("probe_gain_critical") * record.scale]
    if record.ignores_answer and inverted:
        worst = min(inverted, key=lambda s: s.gap)
        paid = f"wrong {mean_of(worst.wrong):.3g}, right {mean_of(worst.right):.3g}"
        formats = f"in {len(inverted)} of {counted(len(record.formats), 'answer format')}"
        findings.append(_finding("inverted", "critical", f"{formats}, most in `{worst.format.name}`: {paid}"))
    elif record.ignores_answer:
        findings.append(
            _finding(
                "answer_ignored", "critical",
                f"in each of {counted(len(record.formats), 'answer format')} it was shown in",
            )
        )  # fmt: skip
    noise = 4 * record.noise / math.sqrt(max(record.num_tasks, 1))
    best: dict[str, ProbeScore] = {}
    for score in (*record.scores, *(s for s in record.right_scores if s.family in ("padding", "repetition"))):
        if math.isfinite(score.gain) and score.gain > best.get(score.family, score).gain - 1e-12:
            best.setdefault(score.family, score)
            if score.gain > best[score.family].gain:
                best[score.family] = score
    for family, score in best.items():
        small = max(0.05, noise)
        if score.gain <= small:
            continue
        warn = max(bound(_OWN_BOUND.get(family, "probe_gain")), noise)
        severity = "info" if score.gain < warn else "warning"
        if score.gain >= max(bound("probe_gain_critical"), warn):
            severity = "critical"
        of_right = "the range of its rewards" if record.ignores_answer else "what a right answer adds"
        text = f"{score.name}: reward {score.reward:.3g}, {100 * score.gain:.0f} % of {of_right}"
        findings.append(_finding(family, severity, text, score))
        if family == "partial" and score.gain > 1.02 + noise:
            findings.append(_finding("monotonicity", "warning", text, score))
    return findings


def _finding(kind: str, severity: str, numbers: str, score: ProbeScore | None = None) -> RewardFinding:
    what = f"{TITLES[kind]}: {numbers}"
    if score is None:
        return RewardFinding(kind, severity, what, ADVICE[kind])
    return RewardFinding(kind, severity, what, ADVICE[kind], score.gain, score.name, score.example)


def _defects(record: ProbeRecord) -> list[RewardFinding]:
    """What breaks a run whether or not a policy exploits it."""
    findings = []
    if record.errors:
        error, where = next(iter(record.errors.items()))
        others = f", and {counted(len(record.errors) - 1, 'other')}" if len(record.errors) > 1 else ""
        findings.append(_finding("exception", "warning", f"{error} ({where}){others}"))
    if record.not_finite:
        text = f"{counted(len(record.not_finite), 'probe')}, first {record.not_finite[0]}"
        findings.append(_finding("non_finite_reward", "critical", text))
    if record.noise > 1e-9:
        severity = "warning" if record.noise > 1e-3 else "info"
        text = f"up to {100 * record.noise:.2g} % of what a right answer adds, between calls on one batch"
        findings.append(_finding("nondeterminism", severity, text))
    if record.batch_change > max(1e-9, 2 * record.noise):
        severity = "warning" if record.batch_change > 0.01 else "info"
        text = f"by up to {100 * record.batch_change:.2g} % of what a right answer adds"
        findings.append(_finding("batch_order", severity, text))
    if record.slow:
        name, seconds = max(record.slow.items(), key=lambda item: item[1])
        hung = record.unfinished != "" or seconds >= bound("probe_hang")
        text = f"{name}: {seconds:.1f} s or more; usual is {1000 * record.median_s:.2g} ms"
        findings.append(_finding("latency", "critical" if hung else "warning", text))
    return findings


def _lost_answers(record: ProbeRecord) -> list[RewardFinding]:
    """Right answers that are not paid: false zeros."""
    if record.ignores_answer:
        return []
    findings = []
    for kind in ("whitespace", "wording"):
        lost = [s for s in record.right_scores if s.family == kind and s.gain < -0.25]
        if lost:
            worst = min(lost, key=lambda s: s.gain)
            severity = "warning" if kind == "whitespace" and worst.gain < -0.5 else "info"
            findings.append(_finding(kind, severity, _names(lost), None))
    unpaid = [s.format.name for s in record.formats if s.gap < 0.5 * record.scale]
    if unpaid:
        share = f"{len(record.formats) - len(unpaid)} of {len(record.formats)}"
        chosen = record.chosen.format.name if record.chosen is not None else ""
        findings.append(_finding("odd_format", "info", f"{share}; probed in the format `{chosen}`"))
    return findings


def _names(scores: Sequence[ProbeScore]) -> str:
    return ", ".join(f"{s.name} ({100 * s.gain:+.0f} %)" for s in scores)


def honest_rewards(record: ProbeRecord) -> tuple[float, float]:
    """Return the mean reward of a right and of a wrong answer in the chosen format."""
    assert record.chosen is not None
    return mean_of(record.chosen.right), mean_of(record.chosen.wrong)
