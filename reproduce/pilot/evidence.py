"""docs/evidence.md between its two marks: tables and figures made from the recorded bank, nothing typed by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from reproduce.pilot.arms import PILOT
from reproduce.pilot.figures import draw_averages, draw_cdfs, draw_tails
from reproduce.pilot.leads import AVERAGES, BUDGET, SERIES, moments, thresholds, widest
from reproduce.pilot.reading import AGGREGATE_RULES, POST_RULES, Outcome, load_bank

__all__ = ["BEGIN", "END", "figures_of", "write_evidence"]

BEGIN, END = "<!-- begin: written by reproduce/tail_emergence.py -->", "<!-- end -->"
DRAWS = 2000


def figures_of(runs: Sequence[Outcome]) -> dict[str, float | int | None]:
    """The pilot's figures; a lead or a ratio nobody can tell is None."""
    limits = thresholds([run for run in runs if run.healthy])
    collapsing = [run for run in runs if open_collapse(run)]
    leads = {
        name: [lead for run in collapsing if (lead := lead_of(run, moments(run, limits), name)) is not None]
        for name in ("post_ratio", "post_tail")
    }
    open_ended, constrained = (
        [run.late["post_p99"] for run in runs if run.arm == arm and math.isfinite(run.late["post_p99"])]
        for arm in ("open", "constrained")
    )
    return {
        "num_runs": len(runs),
        "num_healthy": sum(run.healthy for run in runs),
        "num_collapsed": sum(run.learning and run.collapsed is not None for run in runs),
        "num_open_collapsed": sum(open_collapse(run) for run in runs),
        **_lead_figures("lead_steps", leads["post_ratio"]),
        **_lead_figures("lead_steps_tail_alone", leads["post_tail"]),
        **_lead_figures("text_tail_lead_steps", _text_leads(runs, limits)),
        **_growth_figures(runs),
        "constrained_tail_ratio": round(float(np.mean(open_ended) / np.mean(constrained)), 2)
        if open_ended and constrained
        else None,
    }


def _text_leads(runs: Sequence[Outcome], limits: Mapping[str, float]) -> list[float]:
    """Of all collapsing runs: first average less the text tail, both cut off at the collapse."""
    lost = [run for run in runs if run.learning and run.collapsed is not None]
    found = [lead_of(run, moments(run, limits), "text_tail") for run in lost]
    return [lead for lead in found if lead is not None]


def _growth_figures(runs: Sequence[Outcome]) -> dict[str, float | int | None]:
    limits = widest([run for run in runs if run.arm in REFERENCE])
    grown = [(run, moments(run, limits)) for run in runs if run.arm in GROWING and run.healthy]
    figures: dict[str, float | int | None] = {}
    for name, label in (("post_tail", "growth_lead_steps"), ("all_tail", "growth_lead_steps_all_tokens")):
        leads = [lead for run, found in grown if (lead := growth_lead(run, found, name)) is not None]
        figures |= _lead_figures(label, leads)
    return figures


def _lead_figures(name: str, leads: Sequence[float]) -> dict[str, float | int | None]:
    low, high = interval(leads, np.median)
    median = float(np.median(leads)) if leads else None
    return {f"{name}_n": len(leads), f"{name}_median": median, f"{name}_low": low, f"{name}_high": high}


def lead_of(run: Outcome, found: Mapping[str, int | None], name: str) -> int | None:
    """Steps from a tail's alarm to the first alarm of an average, up to the collapse; what was silent then counts as it.

    None where neither had spoken by then.
    """
    end = run.collapsed or run.steps
    averages = [found[n] for n in AVERAGES]
    first = min((step for step in averages if step is not None and step < end), default=None)
    own = step if (step := found[name]) is not None and step < end else None
    return None if first is None and own is None else (first or end) - (own or end)


def open_collapse(run: Outcome) -> bool:
    """A run with open-ended tool outputs that learnt and collapsed."""
    return run.learning and run.collapsed is not None and run.arm.startswith("open")


def interval(values: Sequence[float], of: Callable[[np.ndarray], float]) -> tuple[float | None, float | None]:
    """95 % percentile bootstrap over runs; None for fewer than three."""
    if len(values) < 3:
        return None, None
    rng = np.random.default_rng(0)
    sample = np.asarray(values, dtype=float)
    drawn = [of(rng.choice(sample, sample.size)) for _ in range(DRAWS)]
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(low), float(high)


def write_evidence(bank: Path, docs: Path) -> dict[str, float | int | None]:
    """Replace what is between the marks of docs/evidence.md (a new file if there is none); draw the three figures."""
    runs = load_bank(bank)
    figures = figures_of(runs)
    pictures = docs / "evidence"
    pictures.mkdir(parents=True, exist_ok=True)
    draw_tails(runs, pictures / "tails.png")
    draw_cdfs(runs, pictures / "cdf.png")
    draw_averages(runs, pictures / "averages.png")
    page = docs / "evidence.md"
    old = page.read_text() if page.exists() else f"# Evidence\n\n{BEGIN}\n{END}\n"
    head, _, rest = old.partition(BEGIN)
    tail = rest.partition(END)[2]
    body = "\n\n".join(
        [
            _pictures(),
            _outcomes(runs),
            _growth(runs),
            _leads(runs),
            _tails(runs),
            _moments(runs),
            _controls(runs),
        ]
    )
    page.write_text(f"{head}{BEGIN}\n\n{body}\n\n{END}{tail}")
    return figures


def _pictures() -> str:
    return "\n\n".join(
        f"![{text}](evidence/{name}.png)"
        for name, text in (
            (
                "tails",
                "p95 of |drift| of text and post-tool tokens by step, one panel an arm, band over seeds",
            ),
            ("cdf", "share of tokens above each |drift|, early, middle and late window"),
            ("averages", "reward, mean KL and gradient norm of the same runs"),
        )
    )


def _by_arm(runs: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    return {arm: mine for arm in PILOT if (mine := [run for run in runs if run.arm == arm])}


def _outcomes(runs: Sequence[Outcome]) -> str:
    rows = [
        [arm, mine[0].family, PILOT[arm].what, len(mine), sum(r.collapsed is not None for r in mine),
         _steps([r.collapsed for r in mine]), _mean(mine, "reward")]
        for arm, mine in _by_arm(runs).items()
    ]  # fmt: skip
    head = ["arm", "family", "what differs", "runs", "collapsed", "at step", "late reward"]
    return "### Runs\n\n" + table(head, rows)


REFERENCE = ("constrained", "low_precision")
GROWING = (
    "open",
    "open_in_distribution",
    "open_no_drift",
    "open_alpha05",
    "open_alpha20",
    "open_alpha50",
    "drift_aware",
)


def growth_lead(run: Outcome, found: Mapping[str, int | None], name: str) -> int | None:
    """Steps from a tail's first moment to the first average's; a silent side counts as the run's end."""
    averages = [step for n in AVERAGES if (step := found[n]) is not None]
    own = found[name]
    return None if not averages and own is None else min(averages, default=run.steps) - (own or run.steps)


def _growth(runs: Sequence[Outcome]) -> str:
    reference = [run for run in runs if run.arm in REFERENCE]
    limits, rows = widest(reference), []
    for arm, mine in _by_arm(runs).items():
        if arm in GROWING:
            found = [moments(run, limits) for run in mine]
            cells = []
            for name in ("post_tail", "all_tail"):
                pairs = zip(mine, found, strict=True)
                leads = [lead for run, each in pairs if (lead := growth_lead(run, each, name)) is not None]
                cells.append(f"{np.median(leads):.0f} ({min(leads)} to {max(leads)})" if leads else "")
            rows.append([arm, *(_steps([each[name] for each in found]) for name in SERIES), *cells])
    head = ["arm", *(n.replace("_", " ") for n in SERIES), "lead of post tail", "lead of all tail"]
    return (
        f"### Runs that grow and do not collapse: who left the constrained runs' range first\n\nThresholds that none of the {len(reference)} runs "
        f"with constrained outputs ({', '.join(REFERENCE)}, learning rate 2e-4) passes. Median step, and in how many runs. Lead: first average "
        "less the tail, median and range over seeds; a side that stayed inside counts as the end of the run.\n\n"
        + table(head, rows)
    )


def _leads(runs: Sequence[Outcome]) -> str:
    healthy = [run for run in runs if run.healthy]
    limits, rows = thresholds(healthy), []
    for run in runs:
        if run.learning and run.collapsed is not None:
            found = moments(run, limits)
            rules = [
                name
                for name, step in run.first.items()
                if step is not None and name in (*POST_RULES, *AGGREGATE_RULES)
            ]
            rows.append([run.arm, run.seed, run.collapsed, *(found[name] for name in SERIES), lead_of(run, found, "post_ratio"),
                         lead_of(run, found, "post_tail"), ", ".join(rules)])  # fmt: skip
    head = [
        "arm",
        "seed",
        "collapse",
        *(n.replace("_", " ") for n in SERIES),
        "lead of ratio",
        "lead of tail",
        "house rules that fired",
    ]
    return (
        f"### Collapsing runs: who spoke first\n\nThresholds that {BUDGET:.0%} of the {len(healthy)} healthy learning runs pass, for a tail "
        "and for the four averages together. Steps; an empty cell never passed. The lead is the step of the first average less the "
        "tail's, both cut off at the collapse; negative: an average was first.\n\n" + table(head, rows)
    )


def _tails(runs: Sequence[Outcome]) -> str:
    names = ["reward", "kl", "grad_norm", "text_p95", "post_p95", "text_p99", "post_p99", "text_unsupported", "post_unsupported", "post_tokens"]  # fmt: skip
    rows = [[arm, *(_mean(mine, name) for name in names)] for arm, mine in _by_arm(runs).items()]
    return (
        "### Late in the run\n\nMeans over the last quarter of each run; in brackets the least and the largest seed. "
        "|drift| in nats; unsupported: share of tokens with log pi_ref below -5.\n\n"
        + table(["arm", *(n.replace("_", " ") for n in names)], rows)
    )


def _moments(runs: Sequence[Outcome]) -> str:
    names = ["post_tool_tail_growth", "post_tail", "text_tail", *AGGREGATE_RULES]
    rows = [
        [arm, *(_steps([run.first[name] for run in mine]) for name in names)]
        for arm, mine in _by_arm(runs).items()
    ]
    return (
        "### First moment each left its own noise\n\nMedian step over the runs in which it did, and in how many it did. "
        "One detector, one false-alarm budget each.\n\n"
        + table(["arm", *(n.replace("_", " ") for n in names)], rows)
    )


def _controls(runs: Sequence[Outcome]) -> str:
    names = ["token_share", "variance_share", "matched_turn_covered", "matched_turn_text_p95", "matched_turn_post_p95",
             "matched_position_covered", "matched_position_text_p95", "matched_position_post_p95", "text_probe_p95", "post_probe_p95"]  # fmt: skip
    rows = [[arm, *(_mean(mine, name) for name in names)] for arm, mine in _by_arm(runs).items()]
    return (
        "### Controls\n\nSecond half of each run: the post-tool share of tokens and of the variance of the per-trajectory "
        "gradient (all weights); p95 of |drift| of post-tool tokens and of text tokens weighted to the same place (in the "
        "turn, or in the completion) and entropy, with the share of post-tool tokens that have such text tokens; the "
        "policy's change on fixed transcripts.\n\n"
        + table(["arm", *(n.replace("_", " ") for n in names)], rows)
    )


def _mean(runs: Sequence[Outcome], name: str) -> str:
    values = [run.late[name] for run in runs if math.isfinite(run.late[name])]
    if not values:
        return ""
    if len(values) == 1:
        return f"{values[0]:.3g}"
    return f"{sum(values) / len(values):.3g} ({min(values):.2g}-{max(values):.2g})"


def _steps(steps: Sequence[int | None]) -> str:
    known = [step for step in steps if step is not None]
    return f"{np.median(known):.0f} ({len(known)}/{len(steps)})" if known else f"never (0/{len(steps)})"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; None is an empty cell."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join("" if cell is None else str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)
