"""Train the lab agent through SkyRL's Tinker API for a few steps and write one row a step.

    bash .ci/skyrl.sh --run [--steps N] [--stale-from N] [--declared] [--out FOLDER]

A step is 16 tool episodes; it takes 1 to 3 s, and some 40 s when a new length is compiled.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path

from reproduce.options import positive
from reproduce.tinker_lab.loop import Plan, train
from reproduce.tinker_lab.server import serve
from trimtab.lab.model import agent_path


def main() -> int:
    """Train and write the rows to `OUT/steps.jsonl`, the run to `OUT/run`."""
    parser = argparse.ArgumentParser(prog="python -m reproduce.tinker_lab", description=__doc__)
    parser.add_argument("--steps", type=positive, default=20, help="optimizer steps (20)")
    parser.add_argument("--seed", type=int, default=0, help="of tasks, adapters and sampling (0)")
    parser.add_argument("--lr", type=float, default=Plan.learning_rate, help="of Adam (1e-3)")
    parser.add_argument("--stale-from", type=positive, help="from this step on the sampler keeps its weights")
    parser.add_argument("--declared", action="store_true", help="say which weights sampled (policy_version)")
    parser.add_argument("--out", type=Path, default=Path("out/tinker_lab"), help="folder (out/tinker_lab)")
    options = parser.parse_args()
    if (options.out / "run").exists():
        print(f"tinker_lab: {options.out / 'run'} exists; give another --out", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server ends as well
    plan = Plan(
        options.steps, options.seed, options.lr, stale_from=options.stale_from, declared=options.declared
    )
    with tempfile.TemporaryDirectory() as scratch, serve(agent_path(), Path(scratch)) as url:
        rows = train(url, agent_path(), options.out / "run", plan)
    (options.out / "steps.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
