"""How often the first visible symptom of a failed episode stands at the step that people call the mistake.

    python benchmarks/first_symptom.py [--json]                  figures of the committed table, results/first_symptom.json
    python benchmarks/first_symptom.py --run --logs FOLDER       read the annotated logs again and write the table

The logs are Who&When (Zhang et al. 2025, arXiv 2505.00212; MIT): 126 failures of agent teams that an algorithm assembled and 58 of a hand-made
team, each with the step of the decisive mistake. They are not in the repository; FOLDER is `Who&When` of

    git clone https://github.com/ag2ai/Agents_Failure_Attribution     (read at f4d2b6d)

The symptom is what trimtab shows of each file (`trimtab traces diagnose`). Beside it stand what needs no log: the first step, and a random step of
an agent; and the first repeated message, which is not counted as a symptom.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from trimtab.stats.intervals import share_interval
from trimtab.traces.read import read_episodes
from trimtab.traces.table.first_symptom import SYMPTOMS, first_symptom

TABLE = Path(__file__).parent / "results" / "first_symptom.json"
SETS = {"algorithm": "Algorithm-Generated", "hand": "Hand-Crafted"}
TERMINAL = "Computer_terminal"


def row_of(path: Path) -> dict[str, Any]:
    """What the figures need of one failure: steps of agents, of the mistake, of the first symptom and the first repeat (-1: none)."""
    log = json.loads(path.read_text())
    agents = [
        i
        for i, one in enumerate(log["history"])
        if one.get("name") != TERMINAL and one.get("role") != "human"
    ]
    texts = [log["history"][i].get("content") or "" for i in agents]
    repeats = [step for at, step in enumerate(agents) if texts[at] in texts[:at]]
    (episode,), _ = read_episodes([path])
    symptom = first_symptom(episode)
    return {
        "log": f"{path.parent.name}/{path.stem}", "mistake": int(log["mistake_step"]), "agents": agents, "symptom": symptom.step,
        "kind": SYMPTOMS[symptom.kind] if symptom.kind >= 0 else "", "repeat": repeats[0] if repeats else -1,
    }  # fmt: skip


def read_logs(folder: Path) -> list[dict[str, Any]]:
    """A row a failure, by set and number."""
    files = [path for name in SETS.values() for path in sorted(folder.glob(f"{name}/*.json"), key=lambda p: int(p.stem))]  # fmt: skip
    return [row_of(path) for path in files]


def figures_of(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Shares of failures whose mistake is the first symptom, the first step, a random step of an agent, the first repeat."""
    figures: dict[str, float] = {}
    for name, folder in SETS.items():
        mine = [row for row in rows if row["log"].startswith(folder)]
        n = len(mine)
        hits = sum(row["symptom"] == row["mistake"] for row in mine)
        shown = sum(row["symptom"] >= 0 for row in mine)
        repeats = [row for row in mine if row["repeat"] >= 0]
        low, high = share_interval(hits / n, n) if n else (float("nan"), float("nan"))
        one = {
            "logs": n,
            "top1": hits / n,
            "top1_low": low,
            "top1_high": high,
            "with_symptom": shown,
            **({"top1_of_those": hits / shown} if shown else {}),
            "before_mistake": sum(0 <= row["symptom"] < row["mistake"] for row in mine),
            "after_mistake": sum(row["symptom"] > row["mistake"] for row in mine),
            "first_step_top1": sum(row["agents"][0] == row["mistake"] for row in mine) / n,
            "random_step_top1": sum((row["mistake"] in row["agents"]) / len(row["agents"]) for row in mine)
            / n,
            "with_repeat": len(repeats),
            "repeat_hits": sum(row["repeat"] == row["mistake"] for row in repeats),
        }
        figures |= {f"symptom_{name}_{key}": round(value, 4) for key, value in one.items()}
    return figures


def main() -> int:
    """Print the figures; with --run, read the logs first."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", action="store_true", help="read the logs and write the table")
    parser.add_argument("--logs", type=Path, default=Path("Who&When"), help="folder of the annotated logs")
    parser.add_argument("--quick", action="store_true", help="as without: the table is small")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object of figures")
    options = parser.parse_args()
    if options.run:
        rows = read_logs(options.logs)
        if not rows:
            print(
                f"no logs in {options.logs}: name the folder Who&When of the clone with --logs",
                file=sys.stderr,
            )
            return 2
        TABLE.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    figures = figures_of(json.loads(TABLE.read_text()))
    for name, value in figures.items():
        print(f"{name:<36}{value}")
    if options.json:
        print(json.dumps({"figures": figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
