"""What does a live run hold, and how long does loading its folder take?

    python benchmarks/run_memory.py [--json] [--quick] [--run]

A loop of small batches (four sequences of 32 tokens, one tool call a step) through `open_run`, `observe` and `flush`; then
`diagnose` of the folder that it wrote. Without an option it prints the committed results; `--run` measures those that
`results/run_memory.json` lacks, and `--quick` 300 steps. Figures: `live_bytes_N` (all objects that the run refers to after N
steps, arrays included), `live_growth_bytes_per_step` (from a fifth of the longest run to its last step) and `load_10k_s`
(processor seconds of loading and diagnosis of 10,000 steps; of a shorter run scaled to them).
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
import types
from pathlib import Path

import numpy as np

STEPS, LOADED = (10_000, 100_000), 10_000
RESULTS = Path(__file__).parent / "results" / "run_memory.json"
_SHARED = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)


def held_bytes(root: object) -> int:
    """Return the bytes of all objects that `root` refers to, without classes, functions and modules."""
    seen: set[int] = set()
    total, waiting = 0, [root]
    while waiting:
        item = waiting.pop()
        if id(item) in seen or isinstance(item, _SHARED):
            continue
        seen.add(id(item))
        total += sys.getsizeof(item)
        waiting += gc.get_referents(item)
    return total


def record(folder: Path, steps: int, first: int) -> dict[str, float]:
    """Write a run of `steps` steps and return what it held, measured at step `first` and at the last."""
    import trimtab

    rng, shape = np.random.default_rng(0), (4, 32)
    mask = np.ones(shape, bool)
    mask[:, 10:14] = False
    held: list[int] = []
    with trimtab.open_run(folder, strict=True) as run:
        for step in range(steps):
            logprobs = -rng.exponential(1.0, shape)
            run.observe(
                loss_mask=mask, logprobs=logprobs, tools=[["search"]] * 4, reward=rng.random(4),
                ref_logprobs=np.minimum(logprobs + rng.normal(0.0, 0.1, shape), 0.0),
            )  # fmt: skip
            run.tool_call(trimtab.ToolCall("search", {"q": "x"}, 100, "", 1.0))
            run.flush(step, {"reward": rng.random(), "loss": rng.normal(), "grad_norm": rng.random()})
            if step + 1 in (first, steps):
                gc.collect()
                held.append(held_bytes(run))
    return {
        "live_growth_bytes_per_step": (held[-1] - held[0]) / max(1, steps - first),
        "live_bytes": held[-1],
    }


def load(folder: Path, steps: int) -> dict[str, float]:
    """Return the processor seconds that a diagnosis of the folder takes."""
    from trimtab.report.run_diagnosis import diagnosis
    from trimtab.report.run_view import load_view

    start = time.process_time()
    diagnosis(load_view(folder))
    return {"load_10k_s": (time.process_time() - start) * 10_000 / steps}


def measured(steps: int) -> dict[str, float]:
    """Record a run of `steps` steps and load it."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        return record(folder, steps, max(1, steps // 5)) | load(folder, steps)


def figures_of(results: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return the flat figures of results by number of steps."""
    longest = results[max(results, key=int)]
    return {
        **{f"live_bytes_{steps}": row["live_bytes"] for steps, row in results.items()},
        "live_growth_bytes_per_step": longest["live_growth_bytes_per_step"],
        "load_10k_s": results.get(str(LOADED), longest)["load_10k_s"],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", action="store_true", help="measure what the results lack")
    parser.add_argument("--quick", action="store_true", help="300 steps, measured now")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object of figures")
    options = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    if options.quick:
        results["300"] = measured(300)
    else:
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        for steps in map(str, STEPS) if options.run else ():
            if steps not in results:
                results[steps] = measured(int(steps))
                RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    if not results:
        parser.error(f"{RESULTS} is missing; --run measures it anew")
    figures = figures_of(results)
    for name, value in figures.items():
        print(f"{name}: {value:.6g}")
    if options.json:
        print(json.dumps({"figures": figures}))


if __name__ == "__main__":
    main()
