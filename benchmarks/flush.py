"""What does one flush cost, and what part of it are the series of the step? Processor time, one thread.

    python benchmarks/flush.py [--json] [--repeats 40] [--quick]

A step of 64 sequences of 64 tokens with all log-probability columns, entropy, rewards, groups, tools and sources, as four
micro-batches, once with 3 tools and 2 sources and once with 16 of each. Figures: `flush_cpu_ms` and `flush_many_slices_cpu_ms` (observe and flush of
a step, median), `series_cpu_ms` and `series_many_slices_cpu_ms` (its series and their row, median; `_min_` minimum), and
`series_ns_per_token` (of a step of 512 x 1,024 tokens).
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse  # noqa: E402
import json  # noqa: E402
import statistics  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402

import trimtab  # noqa: E402
from trimtab.measure.steps.measure_step import measure_step  # noqa: E402
from trimtab.measure.steps.series_row import series_row  # noqa: E402
from trimtab.types import TokenBatch  # noqa: E402


def step_batch(sequences: int, length: int, num_names: tuple[int, int], seed: int) -> TokenBatch:
    """One micro-batch with four tool results a sequence, heavy-tailed ratios, and (tools, sources) of these numbers."""
    rng = np.random.default_rng(seed)
    tool = np.zeros((sequences, length), bool)
    for result in range(1, 5):
        tool[:, result * length // 6 : result * length // 6 + 2] = True
    tools, sources = (
        [f"{what}{i}" for i in range(n)] for what, n in zip(("tool", "source"), num_names, strict=True)
    )
    mu = -rng.exponential(1.0, tool.shape)
    old = np.minimum(mu + 0.01 * rng.standard_t(3, tool.shape), 0.0)
    return trimtab.token_batch(
        ~tool, tool_tokens=tool, tools=rng.choice(tools, (sequences, 4)).tolist(), tool_names=tools,
        source=rng.choice(sources, sequences).tolist(), source_names=sources, rollout_logprobs=mu, old_logprobs=old,
        logprobs=np.minimum(old + 0.01 * rng.standard_t(3, tool.shape), 0.0), entropy=-mu,
        ref_logprobs=np.minimum(old + 0.1 * rng.standard_t(3, tool.shape), 0.0), advantages=rng.normal(0, 1, sequences),
        reward=rng.integers(0, 2, sequences).astype(float), group=np.arange(sequences) // 8 + 1_000 * seed,
    )  # fmt: skip


def times(work: Callable[[int], object], repeats: int) -> list[float]:
    """Processor seconds of each call."""
    spent = []
    for i in range(repeats):
        start = time.process_time()
        work(i)
        spent.append(time.process_time() - start)
    return spent


def micro_batches(num_names: tuple[int, int]) -> list[list[TokenBatch]]:
    """Eight steps of 64 sequences of 64 tokens as four micro-batches each."""
    return [[step_batch(16, 64, num_names, 4 * i + j) for j in range(4)] for i in range(8)]


def flush_times(folder: Path, steps: list[list[TokenBatch]], repeats: int) -> list[float]:
    """Processor seconds of observe and flush of a step, without the first quarter of the steps."""
    with trimtab.open_run(folder, strict=True) as run:

        def flush(i: int) -> None:
            for batch in steps[i % 8]:
                run.observe(batch)
            run.flush(i, {"reward": 0.5, "grad_norm": 1.0})

        return times(flush, repeats)[repeats // 4 :]


def figures_of(folder: Path, repeats: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    print(f"{'':<14}{'slices':>7}{'flush ms':>10}{'series ms':>11}{'min':>7}{'row bytes':>11}")
    for label, num_names in (("", (3, 2)), ("_many_slices", (16, 16))):
        steps = micro_batches(num_names)
        whole = flush_times(folder / f"run{label}", steps, repeats)
        series = times(lambda i, steps=steps: series_row(measure_step(i, steps[i % 8])), repeats)
        row = series_row(measure_step(0, steps[0]))
        figures[f"flush{label}_cpu_ms"] = 1e3 * statistics.median(whole)
        figures[f"series{label}_cpu_ms"] = 1e3 * statistics.median(series)
        figures[f"series{label}_min_cpu_ms"] = 1e3 * min(series)
        print(
            f"{label.strip('_') or 'few slices':<14}{len(row['slices']):>7}{figures[f'flush{label}_cpu_ms']:>10.1f}"
            f"{figures[f'series{label}_cpu_ms']:>11.2f}{1e3 * min(series):>7.2f}{len(json.dumps(row)):>11,}"
        )
    large = step_batch(512, 1_024, (3, 2), 0)
    spent = min(times(lambda i: measure_step(i, [large]), max(1, repeats // 10)))
    figures["series_ns_per_token"] = 1e9 * spent / int(large.loss_mask.sum())
    print(f"a step of 512 x 1,024 tokens: {figures['series_ns_per_token']:.0f} ns a token")
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object of figures")
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument(
        "--quick", action="store_true", help="few repetitions: it checks that everything runs"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        figures = figures_of(Path(name), 8 if options.quick else options.repeats)
    if options.json:
        print(json.dumps({"figures": {key: round(value, 2) for key, value in figures.items()}}))


if __name__ == "__main__":
    main()
