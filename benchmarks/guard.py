"""What do stable states cost? Keeping a ring of three, and going back to one of them, with a real trainer.

    python benchmarks/guard.py [--run] [--steps N] [--quick] [--json]

The bare command prints benchmarks/guard.json. `--run` measures anew (half a minute) and writes it. GRPOTrainer and MiniRLTrainer train the
lab's agent with `watch(trainer, run, guard=...)` and a state every second step, so that the cost of a state is measured often. All times are
CPU seconds of this process, medians. Figures, the worse of the two trainers:

`ring_overhead_frac`: CPU time of one state over that of the 20 steps between two of them by default, less the states (target < 0.03).
`rollback_extra_s`: CPU time of finding the last stable state and restoring it, less that of reading the same files into the trainer
(`load_state`; target < 1). Waits for the disk are not CPU time. The agent is small; `state_mb` says how small. What grows with it is the checksum: files are read once more.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

if __name__ == "__main__":
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

STORE = Path(__file__).with_suffix(".json")
EVERY, REPEATS = 2, 5


def measured(kind: str, steps: int, work: Path) -> dict[str, float]:
    """Train a few steps with a ring of three, then go back again and again; figures of this trainer."""
    import msgspec
    from trl import GRPOTrainer

    from trimtab.adapters.trl import watch
    from trimtab.adapters.trl.control.trainer_state import load_state
    from trimtab.guard import guard_options
    from trimtab.training.lab_grpo import lab_trainer
    from trimtab.training.minirl.trainer import MiniRLTrainer

    recommended = guard_options("recommended")
    often = msgspec.structs.replace(recommended.states, every=EVERY, count=3)
    trainer = lab_trainer(
        "constrained",
        work / f"{kind}.trainer",
        steps=steps,
        prompts_per_step=6,
        kind={"grpo": GRPOTrainer, "minirl": MiniRLTrainer}[kind],
    )
    run = watch(trainer, work / kind, guard=msgspec.structs.replace(recommended, states=often), strict=True)
    guard = run.guard
    assert guard is not None
    states: Any = guard.states
    ring = states.ring
    kept: list[float] = []
    ends: list[float] = []
    states.keep = _timed(states.keep, kept)
    flush = run.flush
    run.flush = lambda *args, **kwargs: (flush(*args, **kwargs), ends.append(time.process_time()))[0]
    trainer.train()
    run.close()
    warm = kept[1:]  # the first state makes the folder
    whole = ends[-1] - ends[1]
    step = (whole - sum(kept[1:])) / (len(ends) - 2)
    last = ring.steps[-1]
    ring.keep(last, "stable", states.controls)
    verified: list[float] = []
    loaded: list[float] = []
    for _ in range(REPEATS):
        ring._verified.clear()  # as for a state whose files were not read before
        start = time.process_time()
        found = ring.last_stable(last + 1)
        assert found == last
        ring.restore(found, states.controls)
        verified.append(time.process_time() - start)
        folder = next(state.trainer for state in ring._states if state.step == last)
        start = time.process_time()
        load_state(trainer, folder, states.controls.mode)
        loaded.append(time.process_time() - start)
    return {
        "step_s": step,
        "keep_s": median(warm),
        "ring_overhead_frac": median(warm) / (recommended.states.every * step),
        "restore_s": median(verified),
        "load_s": median(loaded),
        "rollback_extra_s": median(verified) - median(loaded),
        "state_mb": ring.num_bytes / len(ring.steps) / 1e6,
    }


def _timed(call: Callable[..., None], seconds: list[float]) -> Callable[..., None]:
    def timed(*args: Any, **kwargs: Any) -> None:
        start = time.process_time()
        call(*args, **kwargs)
        seconds.append(time.process_time() - start)

    return timed


def run_all(steps: int) -> dict[str, float]:
    """Measure both trainers; the worse of the two counts."""
    with tempfile.TemporaryDirectory() as name:
        by_kind = {kind: measured(kind, steps, Path(name)) for kind in ("grpo", "minirl")}
    figures = {
        key: max(one[key] for one in by_kind.values()) for key in ("rollback_extra_s", "ring_overhead_frac")
    }
    for kind, one in by_kind.items():
        figures |= {f"{kind}_{key}": value for key, value in one.items()}
    return {key: float(f"{value:.4g}") for key, value in figures.items()}


def main() -> int:
    """Measure or read, and print; 2 where nothing was measured yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", action="store_true", help="measure, and write benchmarks/guard.json")
    parser.add_argument("--steps", type=int, default=24, help="steps of each trainer (by default 24)")
    parser.add_argument(
        "--quick", action="store_true", help="few steps, nothing written: it checks that everything runs"
    )
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object of figures")
    options = parser.parse_args()
    if options.quick:
        figures = run_all(6)
    elif options.run:
        figures = run_all(options.steps)
        STORE.write_text(json.dumps(figures, indent=1) + "\n")
    elif STORE.exists():
        figures = json.loads(STORE.read_text())
    else:
        print(f"benchmarks/guard.py: {STORE} is missing; measure with --run", file=sys.stderr)
        return 2
    for name, value in figures.items():
        print(f"{name:28s} {value}")
    if options.json:
        print(json.dumps({"figures": figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
