"""How often `trimtab traces compare` says "different" where nothing differs, and how often it sees a difference that was planted.

    python benchmarks/compare_halves.py [--json] [--quick] [--log FILE]

Random halves of tau-bench's gpt-4o airline log (50 tasks of 4 attempts; `../shared/data/tau-bench` beside the project, or `--log`), cut by episodes
and by whole tasks; and pairs of simulated logs of one agent: 50 tasks that differ in difficulty and length, 2 attempts each. A user reads 5 %.
Without the log its figures are left out, and a line says so. Two to three minutes on one core; --quick a tenth of the pairs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from trimtab.report.traces.compare import compare_tables
from trimtab.stats.intervals import share_interval
from trimtab.traces.core.episode import Call, Episode, Turn
from trimtab.traces.read import read_episodes
from trimtab.traces.table.build import tabulate

LOG = Path(__file__).resolve().parents[2] / "shared" / "data" / "tau-bench" / "gpt-4o-airline.json"
PAIRS = 800
Pair = tuple[Sequence[Episode], Sequence[Episode]]


def by_episode(log: Sequence[Episode], rng: np.random.Generator) -> Pair:
    """Half of the episodes, whatever their tasks, and the other half."""
    order = rng.permutation(len(log))
    half = len(log) // 2
    return [log[i] for i in order[:half]], [log[i] for i in order[half:]]


def by_task(log: Sequence[Episode], rng: np.random.Generator) -> Pair:
    """All episodes of half of the tasks, and those of the others."""
    tasks = sorted({str(one.task) for one in log})
    mine = set(rng.permutation(tasks)[: len(tasks) // 2].tolist())
    return [one for one in log if one.task in mine], [one for one in log if one.task not in mine]


def simulated(rng: np.random.Generator, tasks: int, each: int, gain: float = 0.0) -> list[Episode]:
    """One agent's log; tasks are the same in every log. `gain` is added to each task's chance of success."""
    fixed = np.random.default_rng(7)
    hard, length = fixed.random(tasks), fixed.integers(2, 9, tasks)
    log = []
    for task in range(tasks):
        for i in range(each):
            solved = bool(rng.random() < np.clip(1 - hard[task] + gain, 0, 1))
            names = rng.choice(["search", "read", "write"], rng.poisson(length[task]))
            calls = [Call(name=str(name), arguments={"k": k}, result="ok", error="late" if rng.random() < 0.05 else "") for k, name in enumerate(names)]  # fmt: skip
            turns = [Turn(role="assistant", calls=[call]) for call in calls]
            log.append(Episode(id=f"{task}/{i}", task=f"t{task}", turns=turns, success=solved, duration_s=float(rng.gamma(length[task]))))  # fmt: skip
    return log


def fired(pairs: Iterator[Pair]) -> Counter[str]:
    """Count the pairs, those called different, and those by their outcome and by other features."""
    count: Counter[str] = Counter()
    for a, b in pairs:
        result = compare_tables(tabulate(a), tabulate(b))
        count["pairs"] += 1
        count["different"] += result["verdict"] == "different"
        count["outcome"] += bool(result["outcome"].get("real"))
        count["features"] += any(row["real"] or row["real_within"] for row in result["contrasts"])
    return count


def rates(name: str, count: Counter[str]) -> dict[str, float]:
    """Return the figures of one series, with Wilson's interval of the share called different."""
    n = count["pairs"]
    low, high = share_interval(count["different"] / n, n)
    shares = {part: round(count[part] / n, 4) for part in ("different", "outcome", "features")}
    ends = {"different_low": round(low, 4), "different_high": round(high, 4)}
    return {f"compare_{name}_{part}": value for part, value in {**shares, **ends, "pairs": n}.items()}


def series(log: Sequence[Episode], pairs: int) -> dict[str, Callable[[], Counter[str]]]:
    """Name -> what counts its pairs; of `log` only where it has episodes."""

    def cut(split: Callable[[Sequence[Episode], np.random.Generator], Pair]) -> Counter[str]:
        rng = np.random.default_rng(1)
        return fired(split(log, rng) for _ in range(pairs))

    def null(tasks: int, each: int, gain: float, pairs: int) -> Counter[str]:
        rng = np.random.default_rng(2)
        return fired((simulated(rng, tasks, each, gain), simulated(rng, tasks, each)) for _ in range(pairs))

    real = {"halves": lambda: cut(by_episode), "task_halves": lambda: cut(by_task)}
    return (real if log else {}) | {
        "null": lambda: null(50, 2, 0.0, pairs),
        "planted": lambda: null(50, 2, 0.15, max(pairs // 4, 10)),  # 15 points more of the tasks solved
    }


def main() -> int:
    """Print a line a series, and with --json the figures as the last line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--log", type=Path, default=LOG, help="a log of an agent that attempts tasks several times"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the pairs")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object of figures")
    options = parser.parse_args()
    log = read_episodes([options.log])[0] if options.log.exists() else []
    if not log:
        print(
            f"{options.log} is absent: only simulated logs are compared (--log names another)",
            file=sys.stderr,
        )
    figures: dict[str, float] = {}
    for name, count in series(log, PAIRS // 10 if options.quick else PAIRS).items():
        of = rates(name, count())
        figures |= of
        parts = {key.removeprefix(f"compare_{name}_"): value for key, value in of.items()}
        print(
            f"{name:<12} different {100 * parts['different']:.1f} % ({100 * parts['different_low']:.1f} to {100 * parts['different_high']:.1f}) "
            f"of {parts['pairs']:,} pairs: by the outcome {100 * parts['outcome']:.1f} %, by other features {100 * parts['features']:.1f} %"
        )
    if options.json:
        print(json.dumps({"figures": figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
