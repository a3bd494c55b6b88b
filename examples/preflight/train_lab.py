"""Train the lab's agent under TRL for a few steps, watched by trimtab; its tools run behind the executor.

python train_lab.py --folder runs/dry --steps 6
python train_lab.py --folder runs/dry --steps 6 --blind    # the fault: no reference, so no log-ratio
"""

from __future__ import annotations

import argparse

from trimtab.lab.database import World
from trimtab.lab.executed_world import ExecutedWorld
from trimtab.training.lab_grpo import lab_trainer, watch_lab


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--blind", action="store_true")
    options = parser.parse_args()
    calls: list[dict[str, object]] = []
    with ExecutedWorld(World(seed=0)) as service:
        trainer = lab_trainer(
            "open", f"{options.folder}.trainer", steps=options.steps, calls=calls, service=service
        )
        watch_lab(trainer, options.folder, calls, reference="off" if options.blind else "auto")
        trainer.train()


if __name__ == "__main__":
    main()
