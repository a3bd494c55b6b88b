"""Fraction of single-line faults that the tests notice: a random sample of mutants, each against the tests of its folder.

A mutant is a copy of the package with one operator, constant or condition changed on one line. It is killed when a test under `tests/<folder>` fails,
and survives when all pass. The sample is drawn with a seed: one mutant a line, over stats, measure, detect, runs and objectives. Each mutant runs in a
process of its own with a limit of CPU seconds, so that a busy machine kills none; one that reaches the limit loops for ever and counts as killed.
Test files that name the mutated module run first, and a run ends at its first failure.

Results are lines of `benchmarks/results/mutation.jsonl`; a mutant that stands there is not run again, so a run that was cut goes on. `--survivors` runs
those alone again that survived, for tests that were added since. A mutant is known by its line's text, not by its number. A row of a line that has
changed since leaves the file, and the next line of the sample takes its part. The figures are those of the sample's rows. `equivalent` in a row is a proof, by hand, that no test can tell the mutant.

    nice -n 19 python reproduce/mutation.py --num 150     # hours on a busy core; --minutes 30 takes what half an hour allows
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from reproduce.mutants import IDENTITY, Mutant, mutants_of, sample
from reproduce.options import positive
from trimtab.errors import RunError

__all__ = ["copied_tree", "figures", "files_of", "judge", "known", "main", "run", "run_tests"]

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/mutation.jsonl"
SEED, NUM, CPU_S, WALL_S, FIRST = 22, 150, 300, 1200, 3
QUICK = 2
PRELOADED = ("numpy", "scipy.stats", "pandas", "duckdb", "pytest", "torch")  # once, not in every fork


def files_of(root: Path, path: str) -> list[str]:
    """Test files of the mirrored folder; those that name the module most often come first, then the shortest."""
    folder = root / "tests" / path.split("/")[0]
    module = "trimtab." + path.removesuffix(".py").replace("/", ".")
    package, _, stem = module.rpartition(".")
    names = {
        node.name
        for node in ast.parse((root / "src/trimtab" / path).read_text()).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    }

    def rank(file: Path) -> tuple[int, int]:
        text = file.read_text()
        score = (
            100 * text.count(module)
            + 10 * text.count(stem)
            + sum(text.count(name) for name in names)
            + text.count(package)
        )
        return -score, len(text)

    return [str(file.relative_to(root)) for file in sorted(folder.rglob("test_*.py"), key=rank)]


class _FirstFailure:
    """Pytest plugin that writes the first test that fails."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.file.exists():
            self.file.write_text(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and not self.file.exists():
            self.file.write_text(report.nodeid)


def run_tests(root: Path, files: Sequence[str], cpu_s: int) -> tuple[str, str, float]:
    """(outcome, first failing test, CPU seconds) of the tests in a fork, against the package in the copied tree `root`."""
    failure, before = root / ".first-failure", resource.getrusage(resource.RUSAGE_CHILDREN)
    failure.unlink(missing_ok=True)
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        _child(root, files, cpu_s, failure)
    status = os.waitpid(pid, 0)[1]
    with suppress(ProcessLookupError):  # what tests have left running
        os.killpg(pid, signal.SIGKILL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if os.WIFSIGNALED(status):
        return "killed", f"signal {os.WTERMSIG(status)} after {spent:.0f} s of CPU", spent
    if os.waitstatus_to_exitcode(status) == 0:
        return "survived", "", spent
    return "killed", failure.read_text() if failure.exists() else "the tests do not start", spent


def _child(root: Path, files: Sequence[str], cpu_s: int, failure: Path) -> None:
    os.setsid()
    signal.alarm(WALL_S)
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 5))
    os.chdir(root)
    sys.path[:0] = [str(root / "src"), str(root)]
    for name in [name for name in sys.modules if name.partition(".")[0] in ("trimtab", "tests", "reproduce")]:
        del sys.modules[name]
    os.environ["PYTHONPATH"] = str(root / "src")
    sink = os.open(root / ".output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(sink, 1), os.dup2(sink, 2)
    import pytest

    options = ["-x", "-q", "-p", "no:xdist", "-p", "no:faulthandler", "-p", "no:cacheprovider", "--tb=no"]
    os._exit(int(pytest.main([*options, *files], plugins=[_FirstFailure(failure)])))


_PASSING: set[str] = set()  # tests that pass on the unchanged package


def confirm(root: Path, test: str, cpu_s: int) -> None:
    """Raise RunError where a test that killed a mutant fails on the unchanged package too."""
    if ("::" not in test and not test.endswith(".py")) or test in _PASSING:
        return
    outcome, failure, _ = run_tests(root, [test], cpu_s)
    if outcome == "killed":
        raise RunError(f"{failure} fails without a mutant; repair it first, its kills say nothing")
    _PASSING.add(test)


def judge(root: Path, mutant: Mutant, cpu_s: int) -> dict[str, Any]:
    """Run one mutant in the copied tree and put the file back."""
    file = root / "src/trimtab" / mutant.path
    whole = file.read_bytes()
    file.write_bytes(whole[: mutant.start] + mutant.new.encode() + whole[mutant.end :])
    try:
        files, spent = files_of(root, mutant.path), 0.0
        for part in (files[:FIRST], files[FIRST:]):  # most mutants end in the first part, which collects fast
            outcome, test, seconds = run_tests(root, part, cpu_s)
            spent += seconds
            if outcome == "killed":
                break
    finally:
        file.write_bytes(whole)
    if outcome == "killed":
        confirm(root, test, cpu_s)
    row = asdict(mutant)
    del row["start"], row["end"]
    return {**row, "outcome": outcome, "killed_by": test, "cpu_s": round(spent, 1)}


def copied_tree(folder: Path) -> Path:
    """Copy the files that git tracks to `folder`, so that a mutant never stands in the working tree."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout.decode()
    for name in filter(None, listing.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def read_rows(file: Path) -> list[dict[str, Any]]:
    """Return the recorded results; none where there is no file."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _write(file: Path, rows: Iterable[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def figures(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Counts of the recorded mutants, and the fraction killed: of all, and of those not proven equivalent."""
    survived = sum(row["outcome"] == "survived" for row in rows)
    equivalent = sum(row["outcome"] == "survived" and bool(row.get("equivalent")) for row in rows)
    killed, nan = len(rows) - survived, float("nan")
    return {
        "num_mutants": len(rows),
        "num_survived": survived,
        "num_equivalent": equivalent,
        "killed_frac": round(killed / len(rows) if rows else nan, 4),
        "killed_frac_without_equivalent": round(killed / (len(rows) - equivalent) if killed else nan, 4),
    }


def _identity(row: dict[str, Any]) -> tuple[object, ...]:
    return tuple(row.get(name) for name in IDENTITY)


def known(root: Path, rows: Sequence[dict[str, Any]]) -> dict[tuple[object, ...], Mutant]:
    """Mutants of recorded rows by identity, where their line is still there."""
    wanted = {_identity(row) for row in rows}
    files = {str(row["path"]): root / "src/trimtab" / str(row["path"]) for row in rows}
    mutants = [m for path, file in files.items() if file.exists() for m in mutants_of(file.read_text(), path)]
    return {mutant.identity: mutant for mutant in mutants if mutant.identity in wanted}


def run(asked: argparse.Namespace, results: Path) -> list[dict[str, Any]]:
    """Run what is missing of the sample, or the survivors again, record each result at once, and return the sample's rows."""
    end = time.monotonic() + 60 * asked.minutes
    with tempfile.TemporaryDirectory(prefix="trimtab-mutants-") as folder:
        root = copied_tree(Path(folder))
        rows = read_rows(results)
        mutants, there = sample(root, asked.num, asked.seed), known(root, rows)
        recorded = {_identity(row): row for row in rows if _identity(row) in there}
        if len(recorded) < len(rows):
            print(f"{len(rows) - len(recorded)} recorded mutants are of lines that have changed: left out")
            _write(results, recorded.values())
        survivors = [
            there[key]
            for key, row in recorded.items()
            if row["outcome"] == "survived" and not row.get("equivalent")
        ]
        missing = [mutant for mutant in mutants if mutant.identity not in recorded]
        for mutant in survivors if asked.survivors else missing:
            if time.monotonic() > end:
                break
            row = recorded[mutant.identity] = judge(root, mutant, asked.cpu_s)
            _write(results, recorded.values())
            print(
                f"{row['outcome']:8} {row['path']}:{row['line']} {row['old']} -> {row['new']}  {row['killed_by']}",
                flush=True,
            )
    return [recorded[mutant.identity] for mutant in mutants if mutant.identity in recorded]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the sample and print the figures; 2 where a test fails without a mutant."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--num", type=positive, default=NUM, metavar="N", help=f"lines in the sample (by default {NUM})")
    add("--seed", type=int, default=SEED, metavar="S", help=f"seed of the sample (by default {SEED})")
    add("--minutes", type=positive, default=10_000, metavar="M", help="start no mutant after so long")
    add(
        "--cpu-s",
        type=positive,
        default=CPU_S,
        metavar="S",
        help=f"CPU seconds of one mutant's tests (by default {CPU_S})",
    )
    add("--survivors", action="store_true", help="run the recorded survivors again, and nothing else")
    add("--quick", action="store_true", help=f"{QUICK} mutants, into a temporary file")
    add("--json", action="store_true", help="the last line is one JSON object of figures")
    asked = parser.parse_args(argv)
    for name in PRELOADED:
        with suppress(ImportError):
            __import__(name)
    try:
        if asked.quick:
            asked.num = QUICK
            with tempfile.TemporaryDirectory() as folder:
                rows = run(asked, Path(folder) / RESULTS.name)
        else:
            rows = run(asked, RESULTS)
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    answer = figures(rows)
    print(
        json.dumps({"figures": answer})
        if asked.json
        else f"{answer['num_mutants']} mutants, {answer['num_survived']} survived ({answer['num_equivalent']} equivalent): "
        f"{answer['killed_frac']:.1%} killed, {answer['killed_frac_without_equivalent']:.1%} without the equivalent"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
