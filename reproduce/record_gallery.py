"""Record the small runs behind pictures of docs/reference/rules.md that no run of the bank could give: `python reproduce/record_gallery.py`.

Each is a real TRL or MiniRL trainer of a tiny untrained model, watched as a user would, in a process of its own and on one thread; all
take a few minutes. `--only NAME` records one. A run that is there is not made again; remove its archive first.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from reproduce.archives import files_below, recording
from reproduce.pilot.slim import slim
from trimtab.runs import compress_run
from trimtab.training.demo import child_environment

RUNS = Path(__file__).with_name("gallery") / "runs"
MADE_BY = {
    "gallery-learn": "learn:learn",
    "gallery-tools": "tools:tools",
    "gallery-moe": "mixture:mixture",
    "gallery-dpo": "pairs:preferences",
    "gallery-sft": "pairs:supervised",
}
"""Run -> the function of reproduce.gallery that trains it."""
QUICK = "gallery-sft"


def record(name: str, folder: Path) -> None:
    """Train, then keep what the rules read."""
    module, _, function = MADE_BY[name].partition(":")
    with tempfile.TemporaryDirectory() as scratch:
        getattr(importlib.import_module(f"reproduce.gallery.{module}"), function)(folder, Path(scratch))
    slim(folder, ("reward/", "tool/", "file/"))
    for path in folder.glob("exemplars.*"):
        path.unlink()
    compress_run(folder)


def main() -> int:
    """Exit status 1 when a run failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=RUNS)
    parser.add_argument("--only", choices=MADE_BY, nargs="+", default=list(MADE_BY))
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK} alone, into a temporary folder; it checks that everything runs",
    )
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object of figures")
    parser.add_argument("--one", choices=MADE_BY, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        record(options.one, options.out / options.one)
        return 0
    if options.quick:
        with tempfile.TemporaryDirectory() as scratch:
            failed = record_all([QUICK], Path(scratch))
    else:
        with recording(options.out, files_below, lambda member: member.parts[0]) as out:
            failed = record_all(options.only, out)
    if options.json:
        num_runs = 1 if options.quick else len(options.only)
        print(json.dumps({"figures": {"num_runs": num_runs, "num_failed": failed}}))
    return int(failed > 0)


def record_all(names: Sequence[str], out: Path) -> int:
    """Record the runs that are missing, each in a process of its own; the number of those that failed."""
    failed = 0
    for name in names:
        folder, start = out / name, time.time()
        if folder.exists():
            print(f"{name}: is there", flush=True)
            continue
        command = [sys.executable, str(Path(__file__)), "--one", name, "--out", str(out)]
        with tempfile.TemporaryFile() as log:
            code = subprocess.run(command, env=child_environment(), stdout=log, stderr=log).returncode
            log.seek(0)
            said = log.read().decode(errors="replace")[-2000:] if code else "done"
        if code:
            shutil.rmtree(folder, ignore_errors=True)
            failed += 1
        print(f"{name}: {said}, {time.time() - start:.0f} s", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
