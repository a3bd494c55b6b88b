"""Real logs of other projects: what trimtab says of each, as a small table, and the figures that rest on it.

    python benchmarks/real_logs.py [--json]                  figures from the committed table, results/real_logs.json
    python benchmarks/real_logs.py --run --logs FOLDER       read the logs again and write the table

The logs are not in the repository; `FOLDER/*/*.jsonl`, `*/trainer_state.json` and `*/events.*` are read (the tuning folder: 16 logs, 1,630 steps; by default
`../shared/data/real-logs` beside the project). Rules were tuned with these logs in sight. The truth is what was read by eye: one policy
dies, its entropy falls from 3.2 to 0.02 over steps 58 to 67; no other alarm of severity critical is right.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parent / "results" / "real_logs.json"
LOGS = Path(__file__).resolve().parents[2] / "shared" / "data" / "real-logs"
DEAD = {"grpo-wordle/events.out.tfevents.1767733342.lara_TUF.21148.0": 67}
"""Log -> step at which its policy had died."""
SHORT, JUDGED = (20, 50), "not judged yet"


def read_logs(folder: Path) -> list[dict[str, Any]]:
    """A row a log: name, rows, verdict, alarms above info."""
    from trimtab.report.metric_log_diagnosis import diagnose_log

    files = [*folder.glob("*/*.jsonl"), *folder.glob("*/trainer_state.json"), *folder.glob("*/events.*")]
    rows = []
    for path in sorted(files):
        one = diagnose_log(path)
        rows.append({
            "log": path.relative_to(folder).as_posix(), "rows": len(one.log.steps), "verdict": one.verdict.word,
            "alarms": [[a.step, a.rule, a.severity] for a in one.alarms if a.severity != "info"],
        })  # fmt: skip
    return rows


def figures_of(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Critical alarms that are false, steps from the end of a policy's death to its alarm, short logs with a verdict."""
    critical = [
        (row["log"], rule) for row in rows for _, rule, severity in row["alarms"] if severity == "critical"
    ]
    delays = []
    for row in rows:
        if row["log"] in DEAD:
            steps = [step for step, rule, _ in row["alarms"] if rule == "entropy_dead"]
            delays.append(min(steps) - DEAD[row["log"]] if steps else float("inf"))
    short = [row["verdict"] != JUDGED for row in rows if SHORT[0] <= row["rows"] <= SHORT[1]]
    return {
        "real_logs": len(rows),
        "real_steps": sum(row["rows"] for row in rows),
        "real_false_critical": sum(
            (log, rule) not in {(dead, "entropy_dead") for dead in DEAD} for log, rule in critical
        ),
        "real_dead_delay_max": max(delays) if delays else float("nan"),
        "short_runs": len(short),
        "short_runs_judged_frac": round(sum(short) / len(short), 4) if short else float("nan"),
    }


def figures_from_results() -> dict[str, float]:
    """The figures of the committed table, for `detectors.py`."""
    return figures_of(json.loads(TABLE.read_text()))


def main() -> int:
    """Print the figures; with --run, read the logs first."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", action="store_true", help="read the logs and write the table")
    parser.add_argument("--logs", type=Path, default=LOGS)
    parser.add_argument("--quick", action="store_true", help="as without: the table is small")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object of figures")
    options = parser.parse_args()
    if options.run:
        rows = read_logs(options.logs)
        if not rows:
            print(f"no logs in {options.logs}", file=sys.stderr)
            return 2
        TABLE.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    figures = figures_from_results()
    for name, value in figures.items():
        print(f"{name:<32}{value}")
    if options.json:
        print(json.dumps({"figures": figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
