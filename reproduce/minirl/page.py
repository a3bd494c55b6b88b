"""An experiment's part of docs/reference/minirl-results.md, between its marks: the table of claims, the figure, a row an arm. Nothing is typed by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from reproduce.minirl.arms import EXPERIMENTS, ON, Experiment
from reproduce.minirl.claims import Claim, load_balancing, off_policy, on_policy, score, shown
from reproduce.minirl.figures import CAPTION, draw
from reproduce.minirl.reading import Outcome, collapses, load_runs, spread
from reproduce.pilot.tables import table
from trimtab.errors import RunError

__all__ = ["check_page", "figures_of", "marks_of", "write_page"]

LATE = ("entropy", "mismatch_kl", "mismatch_p99", "staleness_p99", "first_order_gap", "grad_norm", "length")
Figures = dict[str, float | int | None]


def marks_of(experiment: Experiment) -> tuple[str, str]:
    """Around what a script writes."""
    return f"<!-- begin: written by reproduce/{experiment.script} -->", f"<!-- end: {experiment.script} -->"


def check_page(page: Path, experiment: Experiment) -> None:
    """Raise RunError unless the page is new or has one pair of this script's marks: other words are never overwritten."""
    if page.is_dir():
        raise RunError(f"{page} is a folder; give a file for the page")
    if not page.exists():
        return
    text, (begin, end) = page.read_text(), marks_of(experiment)
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise RunError(
            f"{page} has not one pair of the marks {begin} and {end}; restore them, or give another --page"
        )


def write_page(experiment: Experiment, bank: Path, page: Path) -> Figures:
    """Replace what is between the marks (a new page if there is none), draw the figure; the figures of this experiment."""
    check_page(page, experiment)
    runs = load_runs(bank, experiment)
    page.parent.mkdir(parents=True, exist_ok=True)
    pictures = page.with_suffix("")
    pictures.mkdir(exist_ok=True)
    draw(experiment, runs, pictures / f"{experiment.name}.png")
    body = "\n\n".join([
        _claims(claims_of(experiment, runs, bank)),
        f"![{experiment.title}]({pictures.name}/{experiment.name}.png)\n\n*{experiment.title}.* {CAPTION}",
        _arms(experiment, runs),
        _scan(experiment, runs),
    ])  # fmt: skip
    text = page.read_text() if page.exists() else _empty()
    begin, end = marks_of(experiment)
    head, _, rest = text.partition(begin)
    half = page.with_name(page.name + ".part")
    half.write_text(f"{head}{begin}\n\n{body}\n\n{end}{rest.partition(end)[2]}")
    half.replace(page)
    return figures_of(experiment, runs)


def claims_of(experiment: Experiment, runs: Sequence[Outcome], bank: Path) -> list[Claim]:
    """The paper's claims on this experiment."""
    judged = [run for run in runs if not (experiment.arms[run.arm].scan or experiment.arms[run.arm].control)]
    return (
        [*on_policy(judged), *load_balancing(runs)]
        if experiment is ON
        else off_policy(judged, load_runs(bank, ON))
    )


def _empty() -> str:
    parts = [f"## {one.title}\n\n" + "\n\n".join(marks_of(one)) for one in EXPERIMENTS.values()]
    return "# Papers\n\n" + "\n\n".join(parts) + "\n"


def _claims(rows: Sequence[Claim]) -> str:
    return table(["paper says", "we see (95 % interval over seeds)", "verdict"], [list(row) for row in rows])


def _arms(experiment: Experiment, runs: Sequence[Outcome]) -> str:
    rows = []
    for name, arm in experiment.arms.items():
        mine = [run for run in runs if run.arm == name]
        if arm.scan or not mine:
            continue
        cells = [shown(spread([own.late(key) for own in mine]), ".2g") for key in LATE]
        number, every = collapses(runs, name)
        scores = [
            shown(spread([of(own) for own in mine]))
            for of in (score, lambda run: run.late_held_out, lambda run: run.best)
        ]
        rows.append([name, arm.what, f"{number} of {every}", *scores, *cells])
    head = ["arm", "what", "collapsed", "late reward", "late held-out score", "best held-out score", "entropy, nats", "KL(mu, pi_old) k3, nats", "p99 of abs. mismatch", "p99 of abs. staleness",
            "first-order gap p95", "gradient norm", "tokens a response"]  # fmt: skip
    return "Means over the last quarter of the steps.\n\n" + table(head, rows)


def _scan(experiment: Experiment, runs: Sequence[Outcome]) -> str:
    rows = [
        [run.config["learning_rate"], run.seed, f"{run.held_out[1][0]:.3f}", f"{run.score:.3f}", f"{run.best:.3f}",
         run.collapsed or "no", f"{run.late('entropy'):.3g}", f"{run.late('mismatch_kl'):.3g}"]
        for run in runs if experiment.arms[run.arm].scan
    ]  # fmt: skip
    head = [
        "learning rate",
        "seed",
        "held-out score at the start",
        "late reward",
        "best held-out score",
        "collapsed",
        "late entropy",
        "late KL(mu, pi_old)",
    ]
    return (
        f"Scan of learning rates with MiniRL on policy, one run each of 48 steps, from an earlier cold start and with the load-balancing loss; {experiment.rate:g} was chosen.\n\n"
        + table(head, rows)
        if rows
        else ""
    )


def figures_of(experiment: Experiment, runs: Sequence[Outcome]) -> Figures:
    """For --json: late scores with intervals and collapses, by arm; what too few runs tell is None."""
    found: Figures = {f"{experiment.name}_num_runs": len(runs)}
    for name, arm in experiment.arms.items():
        mine = [run for run in runs if run.arm == name]
        if arm.scan or not mine:
            continue
        own = spread([score(run) for run in mine])
        found |= {
            f"{name}_score": _rounded(own.mean), f"{name}_score_low": _rounded(own.low), f"{name}_score_high": _rounded(own.high),
            f"{name}_num_collapsed": collapses(runs, name)[0], f"{name}_num_runs": len(mine),
            f"{name}_entropy": _rounded(spread([run.late("entropy") for run in mine]).mean),
            f"{name}_mismatch_kl": _rounded(spread([run.late("mismatch_kl") for run in mine]).mean),
        }  # fmt: skip
    return found


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.4g}")
