"""What does the full statistics of one log-ratio cost a token? One thread.

    python benchmarks/measure.py [--json] [--seconds 6]

Three competitors, interleaved in one run, the best repetition of each: `LogSketch.update` (histogram, sums, extremes
of every slice); one float32 `np.exp` pass into a preallocated array (the floor: no per-token work is much cheaper); and
the same answers by masks: per slice a partition for p50..p99.9, the extremes, and float64 sums.
With --json the last line is one JSON object of figures at 10^6 tokens.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse  # noqa: E402
import json  # noqa: E402
import math  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402

import numpy as np  # noqa: E402
import numpy.typing as npt  # noqa: E402

from trimtab.stats import LogSketch  # noqa: E402

QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
SIZES = (10**5, 10**6, 10**7)
SLICES = (2, 20)

Float32 = npt.NDArray[np.float32]
UInt8 = npt.NDArray[np.uint8]


def log_ratios(n: int, rng: np.random.Generator) -> Float32:
    """Bulk of median e^-6, 3 % fat tail, 0.1 % blow-ups, 25 % exact zeros, random signs, at most 30 nats."""
    x = rng.lognormal(-6.0, 1.0, n)
    fat, blown = rng.random(n) < 0.03, rng.random(n) < 0.001
    x[fat] = rng.lognormal(-2.0, 1.0, int(fat.sum()))
    x[blown] = rng.lognormal(1.5, 0.8, int(blown.sum()))
    x[rng.random(n) < 0.25] = 0.0
    x *= rng.choice([-1.0, 1.0], n)
    return np.clip(x, -30.0, 30.0).astype(np.float32)


def exact(x: Float32, rows: UInt8, num_rows: int) -> list[npt.NDArray[np.float64]]:
    """Quantiles, maximum, minimum and the five sums of each slice, by masks."""
    out = []
    for row in range(num_rows):
        mine = x[rows == row]
        ranks = [max(0, math.ceil(q * mine.size) - 1) for q in QUANTILES]
        size = np.abs(mine)
        sizes = np.partition(size, ranks)[ranks]
        wide = mine.astype(np.float64)
        w = np.exp(wide)
        sums = (wide.sum(), np.square(wide).sum(), w.sum(), np.square(w).sum(), np.reciprocal(w).sum())
        out.append(np.array([*sizes, mine.max(), mine.min(), *sums]))
    return out


def ours(x: Float32, rows: UInt8, num_rows: int) -> LogSketch:
    """One pass over everything."""
    sketch = LogSketch(rows=num_rows)
    sketch.update(x, rows)
    return sketch


def best_times(runs: list[Callable[[], object]], seconds: float) -> list[float]:
    """Least time of each, s; taken in turns so that a busy machine slows all of them."""
    best = [math.inf] * len(runs)
    stop = time.perf_counter() + seconds
    done = 0
    while done < 3 or time.perf_counter() < stop:
        for at, run in enumerate(runs):
            start = time.perf_counter()
            run()
            best[at] = min(best[at], time.perf_counter() - start)
        done += 1
    return best


def errors(x: Float32, rows: UInt8, num_rows: int) -> tuple[float, float]:
    """Worst relative error over slices: of the quantiles of |x|, and of the mean exponentials."""
    table, quantile_error, sum_error = ours(x, rows, num_rows), 0.0, 0.0
    for row, want in enumerate(exact(x, rows, num_rows)):
        sketch = table.select([row])
        for q, size in zip(QUANTILES, want, strict=False):
            if size > 2.0**-24:
                quantile_error = max(quantile_error, abs(sketch.abs_quantile(q) / size - 1.0))
        for power, total in zip((1, 2, -1), want[-3:], strict=True):
            got = sketch.log_mean_exp(power) + math.log(sketch.count)
            sum_error = max(sum_error, abs(math.expm1(got - math.log(total))))
    return float(quantile_error), sum_error


def measure(seconds: float) -> dict[str, float]:
    """All figures; prints one line for each size and number of slices."""
    figures: dict[str, float] = {}
    worst = 0.0
    print(
        f"{'tokens':>10} {'slices':>6} {'exp':>7} {'ours':>7} {'exact':>7}  ns/token   ours/exp  exact/ours  error"
    )
    for n in SIZES if seconds else SIZES[:2]:
        x = log_ratios(n, np.random.default_rng(0))
        out = np.empty_like(x)
        for num_rows in SLICES:
            rows = np.random.default_rng(1).integers(0, num_rows, n).astype(np.uint8)
            runs: list[Callable[[], object]] = [
                lambda x=x, out=out: np.exp(x, out=out),
                lambda x=x, rows=rows, k=num_rows: ours(x, rows, k),
                lambda x=x, rows=rows, k=num_rows: exact(x, rows, k),
            ]
            floor, mine, masks = (1e9 * t / n for t in best_times(runs, seconds))
            error, sum_error = errors(x, rows, num_rows)
            worst = max(worst, error)
            print(
                f"{n:>10,} {num_rows:>6} {floor:>7.2f} {mine:>7.2f} {masks:>7.1f} {'':>10} {mine / floor:>8.1f}"
                f" {masks / mine:>11.1f}  {error:.4f}"
            )
            if n == 10**6:
                figures[f"exp_ratio_{num_rows}_slices"] = round(mine / floor, 2)
                figures[f"exact_ratio_{num_rows}_slices"] = round(masks / mine, 2)
                figures[f"ns_per_token_{num_rows}_slices"] = round(mine, 2)
                figures[f"max_rel_sum_error_{num_rows}_slices"] = sum_error
    figures["state_bytes_20_slices"] = LogSketch(rows=20).nbytes
    figures["max_rel_error"] = round(worst, 5)
    return figures


def main() -> None:
    """Print the table, and with --json the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="last line is one JSON object")
    parser.add_argument("--seconds", type=float, default=6.0, help="time for each row of the table")
    parser.add_argument(
        "--quick", action="store_true", help="one repetition a row: it checks that everything runs"
    )
    options = parser.parse_args()
    figures = measure(0.0 if options.quick else options.seconds)
    if options.json:
        print(json.dumps({"figures": figures}))


if __name__ == "__main__":
    main()
