"""Record reproduce/verdict_example: a run whose rollouts become stale in mid-run, as a user's loop would have recorded it.

    python reproduce/collapse.py --run --causes healthy stale_fault --seeds 100   # trains it: two minutes, tokens in out/collapse_raw
    python reproduce/record_example.py [--raw DIR] [--to FOLDER]

Unlike the runs of the collapse bank the folder keeps everything that the page and the verdict show.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import trimtab
from reproduce.collapse_bank.batches import load_batches
from reproduce.collapse_bank.recording import WINDOW, arrays_of, averages_of, probe_batch
from trimtab.lab.probe_bank import probe_bank
from trimtab.runs import compress_run

ROOT = Path(__file__).parents[1]
FILES = ("run.json", "*.gz")


def main() -> None:
    """Record the tokens of the run and keep the files that are committed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--raw", type=Path, default=ROOT / "out" / "collapse_raw", metavar="DIR")
    parser.add_argument("--to", type=Path, default=ROOT / "reproduce" / "verdict_example", metavar="FOLDER")
    options = parser.parse_args()
    run, probes = load_batches(options.raw / "stale_fault" / "100.npz"), probe_bank()
    folder = ROOT / "out" / "verdict_example"
    shutil.rmtree(folder, ignore_errors=True)
    config = {"model": "the lab's agent, 0.45M parameters", "learning_rate": 7e-4, "group_size": 8}
    with trimtab.open_run(
        folder, rank=0, strict=True, config=config, min_tokens=WINDOW, state_every=40
    ) as watch:
        for batch in run.steps:
            if batch.probe_logprobs is not None:
                watch.probe(batch.step, probe_batch(probes, batch.probe_logprobs))
            watch.observe(**arrays_of(batch))
            watch.flush(batch.step, averages_of(batch))
    compress_run(folder)
    for pattern in FILES:
        for path in options.to.glob(pattern):
            path.unlink()
        for path in folder.glob(pattern):
            shutil.copy(path, options.to)


if __name__ == "__main__":
    main()
