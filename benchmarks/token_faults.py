"""Are faults found in token batches, is their cause named first, and is the right tool or rank named? On recorded batches.

    python benchmarks/token_faults.py [--json] [--seeds 10 11 ...]     figures and tables from the committed results
    python benchmarks/token_faults.py --run [--seeds 0 1 ...]          compute what is missing, two processes
    python benchmarks/token_faults.py --quick [--json]                 few streams, computed now

Healthy batches (`fault_bank/pool.npz`, made by `python -m benchmarks.fault_bank.record`) are drawn in blocks into streams; 13 kinds of fault
at full strength and at a third of it, and 8 healthy kinds, go through `trimtab.open_run`; what counts is what `trimtab diagnose` says.
Seeds 0 to 9 set bounds and hypotheses, seeds 10 to 29 are reported. Raw results: `results/token_faults.jsonl`, a line a stream.
docs/explanation/detector-benchmark.md says what is an approximation.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse  # noqa: E402
import json  # noqa: E402
import multiprocessing  # noqa: E402
import sys  # noqa: E402
from collections import Counter  # noqa: E402
from collections.abc import Iterable, Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.fault_bank.faults import FAULTS  # noqa: E402
from benchmarks.fault_bank.healthy import HEALTHY  # noqa: E402
from benchmarks.fault_bank.outcomes import Outcome, confusion, figures_of, table  # noqa: E402
from benchmarks.fault_bank.stream import Case, run_case  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "token_faults.jsonl"
TUNING, REPORTED = range(10), range(10, 30)
STRENGTHS = (1.0, 1 / 3)


def cases(seeds: Iterable[int], kinds: Sequence[str] = ()) -> list[Case]:
    """Every stream of these seeds."""
    wanted = [kind for kind in (*FAULTS, *HEALTHY) if not kinds or kind in kinds]
    return [
        Case(kind, strength, seed)
        for seed in seeds
        for kind in wanted
        for strength in (STRENGTHS if kind in FAULTS else (0.0,))
    ]


def load(path: Path) -> dict[str, dict[str, Any]]:
    """Name of a stream -> its result."""
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row.pop("name"): row for row in rows}


def compute(wanted: Sequence[Case], path: Path | None, jobs: int = 2) -> dict[str, dict[str, Any]]:
    """Run the streams; each result is added to `path` when it is there, so that a run can be continued."""
    results = {}
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for number, (name, row) in enumerate(pool.imap_unordered(_run, wanted), 1):
            results[name] = row
            if path is not None:
                with path.open("a") as out:
                    out.write(json.dumps({"name": name, **row}) + "\n")
                if number % 50 == 0:
                    print(f"{number}/{len(wanted)}", flush=True)
    return results


def _run(case: Case) -> tuple[str, dict[str, Any]]:
    return case.name, run_case(case)


def figures_from_results() -> dict[str, float]:
    """The figures of the reported seeds, for `detectors.py`."""
    return figures_of(
        [Outcome.of(name, row) for name, row in load(RESULTS).items() if _seed(name) in REPORTED]
    )


def _seed(name: str) -> int:
    return int(name.rpartition("/")[2])


def main() -> int:
    """Print the tables; with --json, one line of figures last."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", action="store_true", help="compute the streams that have no result yet")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one seed of four kinds, computed now: it checks that everything runs",
    )
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object of figures")
    parser.add_argument(
        "--seeds", type=int, nargs="+", help="seeds that are run or shown; by default 0 to 29, or 10 to 29"
    )
    parser.add_argument("--kinds", nargs="+", default=(), help="kinds that are run or shown")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.quick:
        kinds = ("wrong_temperature", "off_by_one", "environment_fault", "plain")
        rows = compute(cases([0], kinds), None)
    else:
        if options.run:
            seeds = options.seeds or [*TUNING, *REPORTED]
            known = load(options.results)
            compute([case for case in cases(seeds, options.kinds) if case.name not in known], options.results)
        shown = options.seeds or REPORTED
        rows = {name: row for name, row in load(options.results).items() if _seed(name) in shown}
    outcomes = [
        Outcome.of(name, row)
        for name, row in rows.items()
        if not options.kinds or name.split("/")[0] in options.kinds
    ]
    print(table(outcomes), "\n")
    print(confusion(outcomes), "\n")
    for outcome in outcomes:
        if outcome.kind in HEALTHY and outcome.alarms:
            print(
                f"warned while healthy: {outcome.kind} {outcome.seed}: {Counter(rule for _, rule, _ in outcome.alarms)}"
            )
    figures = figures_of(outcomes)
    for name, value in figures.items():
        print(f"{name:<32}{value}")
    if options.json:
        print(json.dumps({"figures": figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
