"""Run every command under benchmarks/ and reproduce/ with --quick --json, and check that its last line is one object of flat figures.

python .ci/quick.py [NAME ...]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORKERS = 3  # processes at a time, one thread each; some sleep most of their time
LIMIT = 300  # seconds of one command
PARTS = ("environment_rewards",)  # run by another command: benchmarks/environment.py


def commands() -> list[Path]:
    """Return the scripts that have the option --quick, directly or through reproduce/minirl/command.py."""
    scripts = [
        path for folder in ("benchmarks", "reproduce") for path in sorted((ROOT / folder).glob("*.py"))
    ]
    return [
        path
        for path in scripts
        if path.stem not in PARTS
        and ('"--quick"' in path.read_text() or "reproduce.minirl.command" in path.read_text())
    ]


def problem(path: Path) -> str:
    """Run one command; what is wrong with its answer, empty when nothing is."""
    start = time.monotonic()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(path), "--quick", "--json"]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return f"took more than {LIMIT} s"
    print(f"{path.relative_to(ROOT)}: {time.monotonic() - start:.0f} s", flush=True)
    if done.returncode:
        return f"exit status {done.returncode}: {done.stderr[-2000:]}"
    try:
        figures = json.loads(done.stdout.splitlines()[-1])["figures"]
    except (IndexError, ValueError, KeyError, TypeError) as error:
        return f"the last line has no figures ({type(error).__name__}): {done.stdout[-200:]!r}"
    nested = [name for name, value in figures.items() if not isinstance(value, (int, float, str, type(None)))]
    return f"figures that are not flat: {', '.join(nested)}" if nested else ""


def main(names: list[str]) -> int:
    """Exit status 1 when a command fails or its last line cannot be read."""
    scripts = [path for path in commands() if not names or path.stem in names]
    with ThreadPoolExecutor(WORKERS) as pool:
        problems = dict(zip(scripts, pool.map(problem, scripts), strict=True))
    for path, text in problems.items():
        if text:
            print(f"{path.relative_to(ROOT)}: {text}", file=sys.stderr)
    print(f"{len(scripts)} commands, {sum(map(bool, problems.values()))} failed")
    return int(any(problems.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
