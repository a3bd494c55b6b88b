"""Does the post-tool tail come first? The pilot: every arm and seed through TRL and the watch, then docs/reference/pilot.md.

    python reproduce/tail_emergence.py [--seeds N] [--arms NAME ...] [--bank DIR] [--page FILE] [--quick] [--json]

The bare command trains nothing: every run it would record is in reproduce/bank, and it writes the page and the figures from them
(about a minute of a core, a few on a busy machine). Resumable: a run that reached its end is not repeated; a missing one takes one to five minutes of a
core, so `--bank` with an empty folder records the whole bank anew (73 runs). The repository's bank is one archive an arm (reproduce/archives.py);
of another bank one folder a run, <bank>/<tuning|test>/<arm>-s<seed>: even seeds are for tuning detectors, odd seeds for judging them and never
for tuning them. The page itself reads both halves: its thresholds rest on three seeds of quiet runs, and nothing on it is held out.
Of another bank the page is <bank>-evidence.md, beside it. A run that was stopped (Ctrl-C too) begins anew; a folder that is damaged, or that this
script did not leave, is an error (exit 2) and is neither trained over nor removed.
`--quick`: two arms, one seed, few steps, into a temporary folder; it checks that everything runs and claims nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from reproduce.interrupt import said, say_interrupted

if __name__ == "__main__":
    say_interrupted("tail_emergence")

from reproduce.archives import recording
from reproduce.options import positive
from reproduce.pilot.arms import PILOT
from reproduce.pilot.batch import train_all, wanted
from reproduce.pilot.marks import finished_files, folder_of
from trimtab.errors import RunError, TrimtabError

ROOT = Path(__file__).parents[1]
BANK, PAGE = ROOT / "reproduce" / "bank", ROOT / "docs" / "reference" / "pilot.md"
QUICK_ARMS, QUICK_STEPS = ("constrained", "open"), 24


def main() -> int:
    """Train what is missing, then write the evidence; 1 when a run failed, 2 for an error, 130 when interrupted."""
    options = _parser().parse_args()
    try:
        return _one(options) if options.one else _all(options)
    except (TrimtabError, OSError) as error:
        print(f"tail_emergence: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(said("tail_emergence"), file=sys.stderr)
        return 130


def _one(options: argparse.Namespace) -> int:
    from reproduce.pilot.train import run_one

    arm = PILOT[options.one]
    run_one(arm, folder_of(options.bank, arm.name, options.seed), seed=options.seed, steps=options.steps or arm.steps)  # fmt: skip
    return 0


def _all(options: argparse.Namespace) -> int:
    if options.quick:
        with tempfile.TemporaryDirectory() as scratch:
            bank = Path(scratch) / "bank"
            failed = train_all(wanted(list(QUICK_ARMS), 1), QUICK_STEPS, bank, options.jobs)
            return finish(bank, page_of(bank, None), failed, options.json)
    page = page_of(options.bank, options.page)
    from reproduce.pilot.evidence import check_page

    check_page(page)
    with recording(options.bank, finished_files) as bank:
        failed = train_all(wanted(options.arms, options.seeds), options.steps, bank, options.jobs)
        return finish(bank, page, failed, options.json)


def page_of(bank: Path, asked: Path | None) -> Path:
    """docs/reference/pilot.md is written from the repository's bank alone; any other bank has its page beside it, or where it is asked for."""
    own = bank.resolve() == BANK.resolve()
    page = asked or (PAGE if own else bank.resolve().with_name(bank.resolve().name + "-evidence.md"))
    if page.resolve() == PAGE.resolve() and not own:
        raise RunError(f"{page} is written from {BANK} alone; give another --page for the bank {bank}")
    return page


def _parser() -> argparse.ArgumentParser:
    first, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=first,
        epilog=rest.partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--seeds",
        type=positive,
        metavar="N",
        help="seeds 0 to N-1 of each arm are trained where they are missing; by default as many as the repository's bank "
        "holds of the arm (3; 5 and 7 of the hot arms), so that nothing is missing there",
    )
    parser.add_argument(
        "--arms",
        nargs="+",
        choices=sorted(PILOT),
        default=list(PILOT),
        metavar="NAME",
        help="train what is missing of these arms alone (by default of all; the report always covers every run of the bank): "
        + ", ".join(PILOT),
    )
    parser.add_argument(
        "--steps",
        type=positive,
        metavar="N",
        help="length of the runs that are trained; by default each arm's own (140, the warm arms 200); a recorded run that is shorter "
        "is an error",
    )
    parser.add_argument(
        "--bank",
        type=Path,
        default=BANK,
        metavar="DIR",
        help="folder the runs are read from and recorded in (by default reproduce/bank)",
    )
    parser.add_argument(
        "--page",
        type=Path,
        metavar="FILE",
        help="page that is written (by default docs/reference/pilot.md, and <bank>-evidence.md of another bank); figures in the folder of the same name",
    )
    parser.add_argument(
        "--jobs",
        type=positive,
        default=os.cpu_count() or 1,
        metavar="N",
        help="runs trained at a time, one process and one thread each (by default one a core)",
    )
    parser.add_argument(
        "--quick", action="store_true",
        help=f"{' and '.join(QUICK_ARMS)}, one seed, {QUICK_STEPS} steps, into a temporary folder; the other options but --jobs and "
        "--json are not looked at",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object of figures")
    parser.add_argument("--one", choices=sorted(PILOT), help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    return parser


def finish(bank: Path, page: Path, failed: list[str], as_json: bool) -> int:
    """Write tables and figures of the runs that are there, print the figures that can be told."""
    from reproduce.pilot.evidence import write_evidence

    figures = write_evidence(bank, page)
    told = {
        name: value
        for name, value in figures.items()
        if value is not None and (value or name.endswith("median"))
    }
    for name, value in told.items():
        print(f"{name:44s} {value}")
    print(f"{len(figures) - len(told)} further figures are 0, or need more runs than there are")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    if as_json:
        print(json.dumps({"figures": figures}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
