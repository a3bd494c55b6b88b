"""What does watching cost? The watch's own timer over the step time, in the same run of a lab TRL step.

    python benchmarks/overhead.py [--steps N] [--json]

Three runs of the constrained arm (beta=0): without the reference pass, with trimtab's defaults (a quarter of the sequences
scored by its own copy of the weights, probes every ten steps, an eighth scored again after the update), and with every sequence scored. Then the memory of a torch-free
run over many observed steps. Figures: `overhead_frac` (target < 0.02), `overhead_with_reference_frac` (target <= 0.10),
`overhead_full_reference_frac`, `step_s`, `memory_growth_bytes` (resident, from a tenth of the steps to the last).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))
WARMUP = 3


def costs(folder: Path) -> tuple[dict[str, float], float, int]:
    """Seconds by cost, wall seconds and number of steps, without the first steps."""
    from trimtab.runs import RunReader

    reader = RunReader(folder)
    if reader.rows("errors"):
        raise SystemExit(
            f"the monitor failed, so its cost means nothing: {reader.rows('errors')[-1]['error']}"
        )
    rows = reader.rows("steps")[WARMUP:]
    names = {name for row in rows for name in row["costs_s"]}
    return (
        {n: sum(row["costs_s"].get(n, 0.0) for row in rows) for n in names},
        sum(row["duration_s"] for row in rows),
        len(rows),
    )


def lab_run(folder: Path, steps: int, **options: Any) -> tuple[dict[str, float], float, int]:
    """Train the lab's constrained arm under watch and read what it cost."""
    from trimtab.adapters.trl import watch
    from trimtab.training.lab_grpo import lab_trainer

    trainer = lab_trainer("constrained", folder.with_suffix(".out"), steps=steps)
    watch(trainer, folder, **options)
    trainer.train()
    return costs(folder)


def memory_run(folder: Path, steps: int) -> int:
    """Bytes of resident growth between a tenth of the steps and their end, of a torch-free run with small batches.

    Every step brings new trajectories, so windows close, detectors judge, and bounded memories fill in the first tenth.
    """
    from dataclasses import replace

    import numpy as np

    import trimtab
    from tests.support import make_batch

    rng = np.random.default_rng(0)
    batches = [
        make_batch(rng, sequences=16, text=16, tool=4, post=16, step=i, mismatch=0.05) for i in range(8)
    ]
    early = 0
    with trimtab.open_run(folder) as run:
        for step in range(steps):
            run.observe(replace(batches[step % 8], episode_id=np.arange(16) + 16 * step))
            run.flush(step, {"reward": 0.5, "grad_norm": 1.0})
            if step == steps // 10:
                early = resident()
    return resident() - early if early else 0


def resident() -> int:
    """Resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--memory-steps", type=int, default=20_000)
    parser.add_argument("--quick", action="store_true", help="few steps: it checks that everything runs")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object of figures")
    options = parser.parse_args()
    if options.quick:
        options.steps, options.memory_steps = WARMUP + 2, 200
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        print(f"{'run':<28}{'step s':>9}{'watch':>9}{'reference':>11}{'update':>9}{'probes':>9}{'total':>9}")
        for label, key, extra in (
            ("no reference", "overhead_frac", {"reference": "off", "probes": "off", "update_rows": 0}),
            ("defaults", "overhead_with_reference_frac", {}),
            ("every sequence scored", "overhead_full_reference_frac", {"reference_rows": 1.0}),
        ):
            spent, wall, count = lab_run(work / key, options.steps, **extra)
            shares = {n: spent.get(n, 0.0) / wall for n in ("watch", "reference", "update", "probes")}
            figures[key] = sum(shares.values())
            figures["step_s"] = wall / count
            print(
                f"{label:<28}{wall / count:>9.3f}"
                + "".join(
                    f"{shares[n]:>{w}.2%}"
                    for n, w in (("watch", 9), ("reference", 11), ("update", 9), ("probes", 9))
                )
                + f"{figures[key]:>9.2%}"
            )
        figures["memory_growth_bytes"] = memory_run(work / "memory", options.memory_steps)
        figures["memory_steps"] = options.memory_steps
        print(
            f"memory growth from step {options.memory_steps // 10:,} to {options.memory_steps:,}: {figures['memory_growth_bytes'] / 1e6:.1f} MB"
        )
    if options.json:
        print(json.dumps({"figures": figures}))


if __name__ == "__main__":
    main()
