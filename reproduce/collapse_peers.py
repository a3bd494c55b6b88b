"""What other tools say of the runs of the collapse bank: rldoctor, rlprobe and rlwatch, from the averages that the runs logged.

    python reproduce/collapse_peers.py [--run] [--quick] [--json]

The bare command reads what the peers said (reproduce/collapse_bank/peers.json) and prints a table and the figures of the test seeds. `--run`
asks them anew about those, in an environment of their own (`bash benchmarks/peers/setup.sh`). Event, warning and false alarm are those of the registered
test. The runs logged reward, entropy, KL to the start, gradient norm, loss and length a step: no spread within groups, no clip share. rlwatch
speaks in the step. The others judge whole logs, so they are given the first 30 steps, 35, 40 and so on, as a user who looks every five steps.
`--quick`: eight runs, each judged every 40 steps, nothing is stored.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.peers.client import ask, peers_python, versions
from benchmarks.peers.translate import PEERS

from reproduce.archives import unpacked
from reproduce.collapse_bank.marks import folder_of
from reproduce.collapse_bank.outcomes import Alarmed, Outcome, load_outcomes
from trimtab.errors import RunError, TrimtabError
from trimtab.runs import RunReader

STORE = Path(__file__).parent / "collapse_bank" / "runs"
ANSWERS = Path(__file__).parent / "collapse_bank" / "peers.json"
AVERAGES = ("reward", "entropy", "kl", "grad_norm", "loss", "length")
FIRST, EVERY = 30, 5

Answers = dict[str, dict[str, list[list[Any]]]]


def main() -> int:
    """Ask the peers where asked for, then print table and figures; 2 for an error."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", action="store_true", help="ask the peers anew")
    parser.add_argument("--quick", action="store_true", help="a few runs, nothing is stored")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object of figures")
    parser.add_argument("--peers-python", help="the peers' Python")
    options = parser.parse_args()
    try:
        store = unpacked(STORE)
        runs = load_outcomes(store)
        if options.run or options.quick:
            python = peers_python(options.peers_python)
            if python is None and options.run:
                return 2
            tested = [run for run in runs if run.half == "test"]
            chosen = tested[:: len(tested) // 8] if options.quick else tested
            answers = {} if python is None else _asked(python, store, chosen, 40 if options.quick else EVERY)
            if options.run:
                ANSWERS.write_text(json.dumps(answers, separators=(",", ":"), sort_keys=True) + "\n")
        if not options.quick:
            answers = _read()
    except (TrimtabError, OSError, RuntimeError) as error:
        print(f"collapse_peers: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    figures = figures_of(runs, answers)
    for name, value in figures.items():
        print(f"{name:44s} {'not asked' if value is None else value}")
    if options.json:
        print(json.dumps({"figures": figures}))
    return 0


def run_id(run: Outcome) -> str:
    """Return the name of a run among the answers."""
    return f"{run.cause}-{run.role}-s{run.seed}"


def log_of(run: Outcome, folder: Path, every: int) -> dict[str, Any]:
    """Return a run as the peers take a log: its averages under our names, and the prefixes to judge."""
    rows = RunReader(folder).rows("steps")
    return {
        "id": run_id(run),
        "steps": [row["step"] for row in rows],
        "series": {name: [row["metrics"].get(name) for row in rows] for name in AVERAGES},
        "prefixes": list(range(FIRST, len(rows) + 1, every)),
    }


def _asked(python: Path, store: Path, runs: Sequence[Outcome], every: int) -> Answers:
    """Return peer -> run -> [rule, severity, step] of its alarms above info."""
    print(versions(python), file=sys.stderr)
    logs = [log_of(run, folder_of(store, run.cause, run.seed, run.role), every) for run in runs]
    answers: Answers = {}
    for peer in PEERS:
        lines = ask(python, peer, logs)
        failed = [line for line in lines if "error" in line]
        if failed:
            raise RunError(f"{peer} failed on {failed[0]['id']}: {failed[0]['error']}")
        answers[peer] = {
            line["id"]: [
                [f["rule"], f["severity"], f["step"]] for f in line["findings"] if f["severity"] != "info"
            ]
            for line in lines
        }
    return answers


def _read() -> Answers:
    try:
        return dict(json.loads(ANSWERS.read_text()))
    except (OSError, ValueError) as error:
        raise RunError(f"{ANSWERS} cannot be read: {error}; restore it (git restore)") from error


def seen_by(run: Outcome, alarms: Sequence[Sequence[Any]]) -> Outcome:
    """Return a run with a peer's alarms in the place of ours."""
    return replace(run, alarms=tuple(Alarmed(step, rule, "all") for rule, _, step in alarms))


def figures_of(runs: Sequence[Outcome], answers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of every peer on the test seeds it was asked about; None where on none."""
    figures: dict[str, Any] = {}
    for peer in PEERS:
        known = answers.get(peer, {})
        seen = [
            seen_by(run, known[run_id(run)]) for run in runs if run.half == "test" and run_id(run) in known
        ]
        counted = [run for run in seen if run.counts]
        controls = [run for run in seen if run.is_relative]
        leads = [run.lead for run in counted if run.lead is not None]
        figures |= {
            f"{peer}_collapses": len(counted) or None,
            f"{peer}_warned_frac": len(leads) / len(counted) if counted else None,
            f"{peer}_lead_median": median(leads) if leads else None,
            f"{peer}_false_frac_controls": (
                sum(bool(run.alarms) for run in controls) / len(controls) if controls else None
            ),
            f"{peer}_false_frac_before": (
                sum(bool(run.false_alarms) for run in counted) / len(counted) if counted else None
            ),
        }
    return figures


if __name__ == "__main__":
    sys.exit(main())
