"""Whose scenarios are found by whom, also where logs are short, long, or their trouble is weak? rldoctor's and rlprobe's own, fresh seeds.

    python benchmarks/peer_scenarios.py [--json]                       tables and figures from the committed results
    python benchmarks/peer_scenarios.py --run [--peers-python PATH]    compute what is missing (some 15 minutes of a core)

Lengths 200, 1,000 and 5,000, strengths 1 and .4, seeds 50 and 51, which no rule was made with (scenarios.py says what a strength below 1 is).
A scenario counts as found where a system names its family at warning or above, judging the whole log once; rldoctor reads the first 1,000
steps (it is quadratic). Raw results: `results/peer_scenarios.jsonl`, a line a log. Figures, for author A in (rldoctor, rlprobe) and system S:
`A_by_S_frac`, share of A's scenarios found; `healthy_by_S_frac`, share of healthy logs with an alarm.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.peers.client import ask, generated, peers_python
from benchmarks.peers.translate import PEERS

RESULTS = Path(__file__).parent / "results" / "peer_scenarios.jsonl"
LENGTHS, STRENGTHS, SEEDS = (200, 1000, 5000), (1.0, 0.4), range(50, 52)
SYSTEMS = ("trimtab", *PEERS)
AUTHORS = ("rldoctor", "rlprobe")
Row = dict[str, Any]


def result_of(log: Row, answer: Row, length: int, strength: float, system: str) -> Row:
    """What one system said of one log: the highest level at which it names the family, and whether it alarmed at all."""
    found = answer.get("findings", [])
    alarms = [one for one in found if one["severity"] != "info"]
    family = log["expected_family"]
    level = next(
        (
            name
            for name, of in (("alarm", alarms), ("info", found))
            if any(family in one.get("families", ()) for one in of)
        ),
        "",
    )
    return {
        "author": log["peer"], "scenario": log["scenario"], "seed": int(log["id"].rsplit("/", 1)[1]), "length": length,
        "strength": strength, "system": system, "level": "" if log["healthy"] else level, "alarmed": bool(alarms),
        **({"error": answer["error"]} if "error" in answer else {}),
    }  # fmt: skip


def compute(python: Path, path: Path) -> None:
    """Judge what is not in the results yet, one length and strength at a time."""
    from benchmarks.detectors import ours_on

    known = {(row["length"], row["strength"], row["system"]) for row in load(path)}
    for length in LENGTHS:
        for strength in STRENGTHS:
            todo = [s for s in SYSTEMS if (length, strength, s) not in known]
            if not todo:
                continue
            with tempfile.TemporaryDirectory() as folder:
                logs = generated(python, Path(folder) / "logs.jsonl", SEEDS, length, strength)
            for system in todo:
                answers = ours_on(logs) if system == "trimtab" else ask(python, system, logs)
                rows = [
                    result_of(log, answer, length, strength, system)
                    for log, answer in zip(logs, answers, strict=True)
                ]
                with path.open("a", encoding="utf-8") as out:
                    out.writelines(json.dumps(row) + "\n" for row in rows)
                print(f"{length} steps, strength {strength}: {system}", flush=True)


def load(path: Path = RESULTS) -> list[Row]:
    """Rows of the results; [] where there are none."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def figures_of(rows: Sequence[Row]) -> dict[str, float | None]:
    """Shares found by author and system, and of healthy logs alarmed; None without logs."""
    figures: dict[str, float | None] = {}
    for author in AUTHORS:
        for system in SYSTEMS:
            of = [r for r in rows if (r["author"], r["system"]) == (author, system) and is_sick(r)]
            figures[f"{author}_by_{system}_frac"] = share(r["level"] == "alarm" for r in of)
    for system in SYSTEMS:
        of = [r for r in rows if r["system"] == system and not is_sick(r)]
        figures[f"healthy_by_{system}_frac"] = share(r["alarmed"] for r in of)
    return figures


def table_of(rows: Sequence[Row]) -> Iterator[str]:
    """A line a length and strength: scenarios of each author found by each system, as `alarms/logs`, and notes of ours behind."""
    yield f"{'author':<10}{'steps':>6}{'strength':>9}" + "".join(f"{system:>16}" for system in SYSTEMS)
    for author in AUTHORS:
        for length in LENGTHS:
            for strength in STRENGTHS:
                at = (author, length, strength)
                of = [r for r in rows if (r["author"], r["length"], r["strength"]) == at and is_sick(r)]
                cells = [cell([r for r in of if r["system"] == system]) for system in SYSTEMS]
                yield f"{author:<10}{length:>6}{strength:>9}" + "".join(f"{text:>16}" for text in cells)
    healthy = [cell([r for r in rows if r["system"] == s and not is_sick(r)], "alarmed") for s in SYSTEMS]
    yield f"{'healthy logs alarmed':<25}" + "".join(f"{text:>16}" for text in healthy)


def cell(rows: Sequence[Mapping[str, Any]], what: str = "level") -> str:
    """`alarms/logs`, with the number of notes in brackets."""
    hits = sum(row[what] == "alarm" if what == "level" else row[what] for row in rows)
    notes = sum(row["level"] == "info" for row in rows) if what == "level" else 0
    return f"{hits}/{len(rows)}" + (f" (+{notes})" if notes else "")


def is_sick(row: Mapping[str, Any]) -> bool:
    return bool(row["scenario"] != "healthy")


def share(hits: Iterable[bool]) -> float | None:
    found = list(hits)
    return round(sum(found) / len(found), 4) if found else None


def main() -> int:
    """Print the table; with --json, one line of figures last. 2 where --run finds no peers."""
    first, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", action="store_true", help="compute what is missing")
    parser.add_argument("--quick", action="store_true", help="the same as without: the committed results")
    parser.add_argument("--peers-python", help="Python of the peers' environment")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object of figures")
    options = parser.parse_args()
    if options.run:
        python = peers_python(options.peers_python)
        if python is None:
            return 2
        compute(python, RESULTS)
    rows = load()
    print("\n".join(table_of(rows)))
    if options.json:
        print(json.dumps({"figures": figures_of(rows)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
