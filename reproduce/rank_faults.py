"""Ranks that are stopped and killed: what the monitor adds to the others' steps, whom it names, and what it counts.

    python reproduce/rank_faults.py [--run] [--arms NAME ...] [--store FILE] [--quick] [--json]

Four real processes a job: in two arms with a gloo collective a step, in three without. Each watched job runs beside an unwatched twin
that gets the same signals at the same moments. `--run` does what is missing in the store (free_5 takes 3 minutes, free_60 six); it can
be stopped and started again between arms. The bare command prints what is recorded there.
`--quick`: one pause and one kill, in a temporary folder; it checks that everything runs and claims nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from reproduce.interrupt import say_interrupted
from reproduce.rank_bank.faults import ARMS, QUICK, WITHIN_STEPS, run_arm
from trimtab.errors import TrimtabError

STORE = Path(__file__).parents[1] / "benchmarks" / "results" / "rank_faults.jsonl"


def recorded(store: Path) -> list[dict[str, Any]]:
    """The arms in the store."""
    return [json.loads(line) for line in store.read_text().splitlines()] if store.exists() else []


def figures_of(arms: list[dict[str, Any]]) -> dict[str, float | None]:
    """`pause_added_s` is the largest over all pauses, `rank_named_frac` the fraction of the pauses whose rank was named in time."""
    pauses = [fault for arm in arms for fault in arm["faults"] if arm["arm"]["signal"] == "stop"]
    kills = [fault for arm in arms for fault in arm["faults"] if arm["arm"]["signal"] == "kill"]
    named = [fault["named_after"] is not None and fault["named_after"] <= WITHIN_STEPS for fault in pauses]
    return {
        "pause_added_s": max((fault["added_s"] for fault in pauses), default=None),
        "rank_named_frac": round(sum(named) / len(named), 3) if named else None,
        "num_pauses": len(pauses),
        "kill_added_s": max((fault["added_s"] for fault in kills), default=None),
        "num_kills": len(kills),
        "steps_counted_twice": sum(arm["steps_twice"] + arm["windows_twice"] for arm in arms),
        "monitor_failures": sum(arm["monitor_failures"] for arm in arms),
    }


def table_of(arms: list[dict[str, Any]]) -> str:
    """One row an arm."""
    rows = [
        "| faults | number | most added, s | named within 3 steps | counted twice | missing, late |",
        "|---|---|---|---|---|---|",
    ]
    for arm in arms:
        one, merge = figures_of([arm]), arm["merge"]
        lacking = f"{sum(merge.get('missing', {}).values())}, {merge.get('late', 0)}"
        stop = arm["arm"]["signal"] == "stop"
        rows.append(
            f"| {arm['arm']['name']} | {len(arm['faults'])} | {one['pause_added_s'] if stop else one['kill_added_s']} | "
            f"{one['rank_named_frac'] if stop else '-'} | {one['steps_counted_twice']} | {lacking} |"
        )
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for, and print it; 2 for an error."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", action="store_true", help="run the arms that are missing in the store")
    parser.add_argument("--arms", nargs="+", choices=[arm.name for arm in ARMS], help="only these")
    parser.add_argument("--store", type=Path, default=STORE, help="file of results")
    parser.add_argument("--quick", action="store_true", help="one pause and one kill, nothing is kept")
    parser.add_argument("--json", action="store_true", help="print the figures as one object alone")
    options = parser.parse_args(arguments)
    try:
        if options.quick:
            with tempfile.TemporaryDirectory() as scratch:
                folders = [Path(scratch) / arm.name for arm in QUICK]
                with ThreadPoolExecutor() as pool:  # their processes sleep most of the time
                    arms = list(pool.map(run_arm, QUICK, folders))
        else:
            done = {arm["arm"]["name"] for arm in recorded(options.store)}
            for arm in ARMS:
                if (
                    options.run
                    and arm.name not in done
                    and arm.name in (options.arms or [a.name for a in ARMS])
                ):
                    with tempfile.TemporaryDirectory() as scratch:
                        result = run_arm(arm, Path(scratch) / arm.name)
                    with options.store.open("a") as file:
                        file.write(json.dumps(result) + "\n")
            arms = recorded(options.store)
    except (TrimtabError, RuntimeError, OSError) as error:
        print(f"rank_faults: {error}", file=sys.stderr)
        return 2
    if not options.json:
        print(table_of(arms))
    print(json.dumps({"figures": figures_of(arms)}))
    return 0


if __name__ == "__main__":
    say_interrupted("rank_faults")
    sys.exit(main())
