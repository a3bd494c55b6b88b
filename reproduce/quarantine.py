"""Tool quarantine on the tool outage of the collapse bank: none, masked, withheld, a placebo and an oracle from one checkpoint at the fault.

    python reproduce/quarantine.py [--run] [--seeds N ...] [--raw DIR] [--store DIR] [--quick] [--json]

The bare command trains nothing: it reads the records in reproduce/quarantine_bank/runs, prints table and figures of complete seeds, and
measures false entries on simulated calls (some seconds).
`--run` trains what is missing, seed by seed, three minutes of a core a seed, and packs it. It can be stopped and started again at any time.
Seeds 100 to 107 are for tuning; seeds 400 to 411 are refused until docs/quarantine-test.md is committed.
`--quick`: one seed for a few steps in a temporary folder; it checks that everything runs and claims nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from reproduce.interrupt import said, say_interrupted

if __name__ == "__main__":
    say_interrupted("quarantine")
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

from reproduce.archives import pack, unpacked
from reproduce.collapse_bank.figures import first_commit
from reproduce.quarantine_bank.arms import (
    ARMS,
    CAUSES,
    TEST_SEEDS,
    TUNING_SEEDS,
    Steps,
    record_file,
    train_seed,
)
from reproduce.quarantine_bank.figures import (
    PAGE,
    Bank,
    figures_of,
    load_records,
    null_figures,
    registered_before_data,
    table_of,
    test_records,
)
from trimtab.errors import RunError, TrimtabError

ROOT = Path(__file__).parents[1]
STORE, RAW = ROOT / "reproduce" / "quarantine_bank" / "runs", ROOT / "out" / "quarantine_raw"
QUICK = Steps(fault=3, outage=2, horizon=4, evaluated=1)


def main() -> int:
    """Train where asked to, then print table and figures; 2 for an error, 130 when interrupted."""
    options = _parser().parse_args()
    try:
        if options.quick:
            with tempfile.TemporaryDirectory() as scratch:
                options.raw, options.store = Path(scratch) / "raw", Path(scratch) / "store"
                _train(options.raw, [TUNING_SEEDS[0]], QUICK)
                _pack(options.raw, options.store)
                return _show(options)
        if options.run:
            _check_seeds(options.seeds)
            _fill(options.store, options.raw)
            _train(options.raw, options.seeds)
            _pack(options.raw, options.store)
            unpacked.cache_clear()
        return _show(options)
    except (TrimtabError, OSError) as error:
        print(f"quarantine: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(said("quarantine"), file=sys.stderr)
        return 130


def _train(raw: Path, seeds: Iterable[int], steps: Steps | None = None) -> None:
    import torch

    torch.set_num_threads(1)
    for seed in seeds:
        for line in train_seed(raw, seed, steps):
            print(line, flush=True)


def _show(options: argparse.Namespace) -> int:
    records = load_records(options.store)
    bank = Bank(records if options.quick else test_records(records))
    if bank.seeds:
        print(f"{table_of(bank)}\n")
    figures = {
        "registered_before_data": registered_before_data(ROOT, options.store.absolute()),
        **figures_of(bank),
        **null_figures(*([50] if options.quick else [])),
    }
    for name, value in figures.items():
        print(f"{name:36s} {'not yet run' if value is None else value}")
    if options.json:
        print(json.dumps({"figures": figures}))
    return 0


def _fill(store: Path, raw: Path) -> None:
    """Copy records that are in the store and not in `raw`: a run goes on where an earlier one was packed."""
    for record in load_records(store):
        path = record_file(raw, record["cause"], record["seed"], record["arm"])
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(record, separators=(",", ":")) + "\n")


def _pack(raw: Path, store: Path) -> None:
    """Pack all records into one archive a cause and half."""
    for cause in ("healthy", *CAUSES):
        for half, seeds in (("test", TEST_SEEDS), ("tuning", TUNING_SEEDS)):
            paths = [record_file(raw, cause, seed, arm) for seed in seeds for arm in ARMS[CAUSES[0]]]
            files = [path for path in paths if path.exists()]
            if files:
                pack(raw, files, store / f"{cause}-{half}.zip")


def _check_seeds(seeds: Sequence[int]) -> None:
    unknown = sorted(set(seeds) - {*TEST_SEEDS, *TUNING_SEEDS})
    if unknown:
        raise RunError(
            f"seed {unknown[0]} is neither a tuning seed (100 to 107) nor a test seed (400 to 411)"
        )
    if set(seeds) & set(TEST_SEEDS) and first_commit(ROOT, PAGE) is None:
        raise RunError(f"test seeds wait until {PAGE} is committed")


def _parser() -> argparse.ArgumentParser:
    first, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=first,
        epilog=rest.partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--run", action="store_true", help="train what is missing, and pack it")
    add("--seeds", nargs="+", type=int, default=[TUNING_SEEDS[0]], metavar="N", help="by default 100")
    add(
        "--raw",
        type=Path,
        default=RAW,
        metavar="DIR",
        help="folder of records (by default out/quarantine_raw)",
    )
    add("--store", type=Path, default=STORE, metavar="DIR", help="folder of archives (by default reproduce/quarantine_bank/runs)")  # fmt: skip
    add("--quick", action="store_true", help="one short seed in a temporary folder")
    add("--json", action="store_true", help="the last line is one JSON object of figures")
    return parser


if __name__ == "__main__":
    sys.exit(main())
