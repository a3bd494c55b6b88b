"""What does a live run hold, and how long does loading its folder take?

    python benchmarks/run_memory.py [--steps N] [--json] [--quick]

A loop of small batches (four sequences of 32 tokens, one tool call a step) through `open_run`, `observe` and `flush`; then
`diagnose` of the folder that it wrote. Figures: `live_growth_bytes_per_step` (all objects that the run
refers to, arrays included, from a fifth of the steps to the last), `live_bytes`, `load_steps` and `load_10k_s` (processor
seconds of loading and diagnosis, scaled to 10,000 steps).
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
from typing import Any

import numpy as np

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
    return {"load_steps": steps, "load_10k_s": (time.process_time() - start) * 10_000 / steps}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000, help="steps of the run")
    parser.add_argument("--quick", action="store_true", help="300 steps")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    options = parser.parse_args()
    steps = 300 if options.quick else options.steps
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        figures: dict[str, Any] = record(folder, steps, max(1, steps // 5)) | load(folder, steps)
    if options.json:
        print(json.dumps({"figures": figures}))
        return
    for name, value in figures.items():
        print(f"{name}: {value:.6g}")


if __name__ == "__main__":
    main()
