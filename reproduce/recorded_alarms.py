"""Do all recorded runs give the same alarms and verdicts as before? Compares them with reproduce/recorded_alarms.json.

    python reproduce/recorded_alarms.py [--write] [--quick] [--json]

Every recorded run (the pilot's bank, the gallery, SmolLM2) is read, its rules are replayed, and each alarm is compared by rule, step, first
step of its evidence, severity, slice, whether averages were silent, the step at which it ended, and its bound to nine digits. Exit status 1
when anything differs. `--write` records what is so now: only for a change that is meant to change alarms. About ten seconds of a core.
`--quick`: the gallery and SmolLM2 alone.
`--write` also replaces the alarms stored in `verdict_example` by those of its replay.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from reproduce.archives import unpacked
from trimtab.report.run_view import load_view
from trimtab.runs.records import alarm_row
from trimtab.runs.row_lines import encode_row
from trimtab.types import Alarm

__all__ = ["ALARMS", "STORES", "alarms_of", "differences", "recorded_runs"]

ROOT = Path(__file__).parent
ALARMS = ROOT / "recorded_alarms.json"
EXAMPLE = ROOT / "verdict_example"
_STEPS = EXAMPLE / "steps.r0.s0.jsonl.gz"
STORES = {"gallery": "gallery/runs", "smollm2": "smollm2/runs", "bank": "bank"}
QUICK = ("gallery", "smollm2")

Summary = dict[str, Any]  # verdict: the word; shown, replayed: one line an alarm


def recorded_runs(stores: Iterable[str] = tuple(STORES)) -> dict[str, Path]:
    """Return name -> run folder of every recorded run of these stores."""
    found = {}
    for store in stores:
        for header in sorted(unpacked(ROOT / STORES[store]).rglob("run.json")):
            found[f"{store}/{header.parent.name}"] = header.parent
    return found


def alarms_of(folder: Path) -> Summary:
    """Return the verdict of a run, the alarms that it shows, and those that come of replaying its readings."""
    view = load_view(folder)
    return {
        "verdict": view.verdict.word,
        "shown": _lines(view.alarms),
        "replayed": _lines(view.pipeline.alarms),
    }


def _lines(alarms: Sequence[Alarm]) -> list[str]:
    fields = ("rule", "fired", "since", "severity", "slice", "hidden")  # names of the stored row
    rows = [(alarm_row(alarm, "fired", alarm.step), alarm) for alarm in alarms]
    return [
        " ".join([*(str(row[name]) for name in fields), str(alarm.cleared), f"{row['bound']:.9g}"])
        for row, alarm in rows
    ]


def write_example() -> None:
    """Store the alarms of the example's replay, as a run of today would have; it had none that cleared."""
    alarms = sorted(load_view(EXAMPLE).pipeline.alarms, key=lambda alarm: alarm.step)
    steps = [json.loads(line) for line in gzip.decompress(_STEPS.read_bytes()).splitlines()]
    begun = {row["step"]: row["s"] for row in steps}
    rows = [
        encode_row(alarm_row(alarm, "fired", alarm.step), number, begun[alarm.step])
        for number, alarm in enumerate(alarms)
    ]
    for row in steps:  # a row of a step states how many rows of alarms were written by then
        row["n"]["alarms"] = sum(alarm.step <= row["step"] for alarm in alarms)
    lines = [encode_row(_fields(row), row["q"], row["s"]) for row in steps]
    for path, parts in ((_STEPS, lines), (_STEPS.with_name("alarms.r0.s0.jsonl.gz"), rows)):
        path.write_bytes(gzip.compress(b"".join(parts), 9, mtime=0))


def _fields(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("s", "q", "c")}


def differences(before: Mapping[str, Summary], now: Mapping[str, Summary]) -> list[str]:
    """Return one line for each run, verdict or alarm that one has and the other lacks."""
    lines = [f"{run}: not in {ALARMS.name}" for run in now if run not in before]
    for run in now.keys() & before.keys():
        old, new = before[run], now[run]
        if old["verdict"] != new["verdict"]:
            lines.append(f"{run}: the verdict was {old['verdict']!r} and is {new['verdict']!r}")
        for kind in ("shown", "replayed"):
            lines += [f"{run}: {kind} alarm lost: {line}" for line in old[kind] if line not in new[kind]]
            lines += [f"{run}: {kind} alarm new: {line}" for line in new[kind] if line not in old[kind]]
            if sorted(old[kind]) == sorted(new[kind]) and old[kind] != new[kind]:
                lines.append(f"{run}: {kind} alarms are in another order")
    return sorted(lines)


def main() -> int:
    """Compare or write; 1 when anything differs."""
    first, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare with the recorded alarms (the default)")
    parser.add_argument("--write", action="store_true", help="record the alarms of today")
    parser.add_argument("--quick", action="store_true", help=f"the runs of {' and '.join(QUICK)} alone")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object of figures")
    options = parser.parse_args()
    runs = recorded_runs(QUICK if options.quick and not options.write else STORES)
    now = {run: alarms_of(folder) for run, folder in runs.items()}
    if options.write:
        ALARMS.write_text(json.dumps(now, indent=0) + "\n")
        write_example()
    before = json.loads(ALARMS.read_text())
    lines = differences(before, now)
    if not options.quick:
        lines += [f"{run}: the run is missing" for run in before if run not in now]
    print("\n".join([*lines, f"{len(now)} runs, {len(lines)} differences"]))
    if options.json:
        counts = {
            f"num_{kind}": sum(len(run[kind]) for run in now.values()) for kind in ("shown", "replayed")
        }
        print(json.dumps({"figures": {"num_runs": len(now), **counts, "num_differences": len(lines)}}))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
