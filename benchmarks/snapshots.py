"""Is the advice which checkpoint to keep any good? Held-out score it gives away, beside what engineers do instead.

    python benchmarks/snapshots.py [--json]            judge the recorded runs of reproduce/snapshot_bank/runs; half a minute
    python benchmarks/snapshots.py --run [--seeds N]   train and record what is missing first; 5 minutes of one core a seed
    python benchmarks/snapshots.py --quick             train a few steps in a temporary folder: checks that everything runs

`checkpoint_pick_regret`: best held-out score among a run's checkpoints less that of the one picked, mean over the judging runs. The
prediction was committed before they were judged (docs/explanation/checkpoint-advice.md). Tuning seeds 400 and 401, judging seeds 410 to 412.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

if __name__ == "__main__":
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

from reproduce.archives import pack, unpacked
from reproduce.snapshot_bank.judging import figures_of, judge, run_folders, table_of
from reproduce.snapshot_bank.recording import record
from reproduce.snapshot_bank.training import JUDGING, TUNING, train_seed

from trimtab.errors import TrimtabError

ROOT = Path(__file__).parents[1]
STORE, RAW = ROOT / "reproduce" / "snapshot_bank" / "runs", ROOT / "out" / "snapshot_raw"
QUICK_STEPS, QUICK_CAUSES = 10, ("healthy", "proxy_reward")


def main() -> int:
    """Train where asked for, then print tables and figures; 2 for an error."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", action="store_true", help="train and record what is missing")
    parser.add_argument("--seeds", type=int, nargs="+", default=[*TUNING, *JUDGING])
    parser.add_argument("--raw", type=Path, default=RAW, help="where trained runs are kept")
    parser.add_argument("--quick", action="store_true", help="a few steps of one seed, in a temporary folder")
    parser.add_argument("--json", action="store_true", help="end with one line of figures")
    options = parser.parse_args()
    try:
        if options.quick:
            with tempfile.TemporaryDirectory() as scratch:
                _train(Path(scratch) / "raw", [JUDGING[0]], steps=QUICK_STEPS, causes=QUICK_CAUSES)
                _record(Path(scratch) / "raw", Path(scratch) / "runs")
                return _show(Path(scratch) / "runs", options.json)
        if options.run:
            _train(options.raw, options.seeds)
            _record(options.raw, options.raw / "runs")
            _pack(options.raw / "runs", STORE)
        return _show(unpacked(STORE), options.json)
    except (TrimtabError, OSError) as error:
        print(f"snapshots: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


def _train(raw: Path, seeds: Sequence[int], **shorter: Any) -> None:
    import torch

    torch.set_num_threads(1)
    for seed in seeds:
        for line in train_seed(raw, seed, **shorter):
            print(line, file=sys.stderr, flush=True)


def _record(raw: Path, store: Path) -> None:
    for path in sorted(raw.glob("*.json")):
        record(path, store / path.stem)


def _pack(runs: Path, store: Path) -> None:
    """One archive a cause."""
    folders = run_folders(runs)
    for cause in sorted({folder.name.rpartition("-s")[0] for folder in folders}):
        mine = [folder for folder in folders if folder.name.startswith(f"{cause}-s")]
        pack(runs, [file for folder in mine for file in sorted(folder.iterdir())], store / f"{cause}.zip")


def _show(store: Path, as_json: bool) -> int:
    runs = [judge(folder) for folder in run_folders(store)]
    for half in ("tuning", "judging"):
        if lines := table_of(runs, half):
            print("\n".join(lines), end="\n\n")
    if as_json:
        print(json.dumps({"figures": figures_of(runs)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
