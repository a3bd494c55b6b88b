"""The command line that both experiments share: train what is missing, then write the page from all that is recorded."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from pathlib import Path

from reproduce.archives import recording
from reproduce.children import TOLD
from reproduce.interrupt import said
from reproduce.minirl.arms import Experiment
from reproduce.minirl.bank import finished_files
from reproduce.minirl.batch import train_all, wanted
from reproduce.minirl.page import check_page, write_page
from reproduce.options import positive
from trimtab.errors import RunError, TrimtabError

__all__ = ["BANK", "PAGE", "main", "page_of"]

ROOT = Path(__file__).parents[2]
BANK, PAGE = ROOT / "reproduce" / "minirl" / "bank", ROOT / "docs" / "reference" / "minirl-results.md"
SUPERVISED = 600  # steps of the cold start
QUICK_STEPS, QUICK_SUPERVISED, QUICK_ARMS = 4, 10, 2


def main(experiment: Experiment, text: str, arguments: list[str] | None = None) -> int:
    """0, or 1 when a run failed, 2 for an error, 130 when interrupted."""
    options = _parser(experiment, text).parse_args(arguments)
    name = Path(experiment.script).stem
    try:
        return _train(experiment, options) if options.train else _all(experiment, options)
    except (TrimtabError, OSError) as error:
        print(f"{name}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(said(name), file=sys.stderr)
        return 130


def _train(experiment: Experiment, options: argparse.Namespace) -> int:
    """In a child: one run after the other. A run that fails is told with its traceback and does not stop the others."""
    from reproduce.minirl.train import run_one

    failed = 0
    for name in options.train:
        arm, _, seed = name.partition(":")
        began = time.time()
        try:
            run_one(
                experiment, experiment.arms[arm], options.bank, seed=int(seed), steps=experiment.steps_of(arm, options.steps),
                supervised=options.supervised,
            )  # fmt: skip
        except Exception:
            traceback.print_exc()
            failed += 1
        print(f"{TOLD.decode()}{arm}-s{seed}: {time.time() - began:.0f} s", flush=True)
    return 1 if failed else 0


def _all(experiment: Experiment, options: argparse.Namespace) -> int:
    if options.quick:
        arms = [name for name, arm in experiment.arms.items() if not (arm.scan or arm.control)]
        with tempfile.TemporaryDirectory() as scratch:
            bank, runs = Path(scratch) / "bank", wanted(experiment, [arms[0], arms[-1]], 1)
            failed = train_all(experiment, runs, QUICK_STEPS, QUICK_SUPERVISED, bank, options.jobs)
            return _finish(experiment, bank, page_of(bank, None), failed, options.json)
    page = page_of(options.bank, options.page)
    check_page(page, experiment)
    runs = wanted(experiment, options.arms, options.seeds)
    if options.scan:
        runs += wanted(experiment, [name for name, arm in experiment.arms.items() if arm.scan], None)
    steps = options.steps or experiment.steps
    with recording(
        options.bank, finished_files, lambda member: member.parts[0]
    ) as bank:  # one archive an experiment
        failed = train_all(experiment, runs, steps, SUPERVISED, bank, options.jobs)
        return _finish(experiment, bank, page, failed, options.json)


def page_of(bank: Path, asked: Path | None) -> Path:
    """docs/reference/minirl-results.md is written from the repository's bank alone; any other bank has its page beside it, or where it is asked for."""
    own = bank.resolve() == BANK.resolve()
    page = asked or (PAGE if own else bank.resolve().with_name(bank.resolve().name + "-papers.md"))
    if page.resolve() == PAGE.resolve() and not own:
        raise RunError(f"{page} is written from {BANK} alone; give another --page for the bank {bank}")
    return page


def _finish(experiment: Experiment, bank: Path, page: Path, failed: list[str], as_json: bool) -> int:
    figures = write_page(experiment, bank, page)
    told = {key: value for key, value in figures.items() if value is not None}
    for key, value in told.items():
        print(f"{key:44s} {value}")
    if len(told) < len(figures):
        print(f"{len(figures) - len(told)} further figures need more runs, or longer ones, than there are")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    if as_json:
        print(json.dumps({"figures": figures}))
    return 1 if failed else 0


def _parser(experiment: Experiment, text: str) -> argparse.ArgumentParser:
    first, _, rest = text.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=first,
        epilog=rest.partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    judged = [name for name, arm in experiment.arms.items() if not arm.scan]
    add = parser.add_argument
    add("--seeds", type=positive, metavar="N", help="seeds 0 to N-1 of each arm are trained where they are missing; by default those "
        "the repository's bank holds, so that nothing is missing there")  # fmt: skip
    add("--arms", nargs="+", choices=sorted(judged), default=judged, metavar="NAME", help="train what is missing of these arms alone "
        "(by default of all; the page always covers every run of the bank): " + ", ".join(judged))  # fmt: skip
    add("--steps", type=positive, metavar="N", help=f"optimizer steps of the runs that are trained; by default {experiment.steps}; a "
        "recorded run that is shorter is an error")  # fmt: skip
    add(
        "--bank",
        type=Path,
        default=BANK,
        metavar="DIR",
        help="folder the runs are read from and recorded in (by default reproduce/minirl/bank)",
    )
    add("--page", type=Path, metavar="FILE", help="page that is written (by default docs/reference/minirl-results.md, and <bank>-papers.md of another bank); "
        "figures in the folder of the same name")  # fmt: skip
    add(
        "--jobs",
        type=positive,
        default=1,
        metavar="N",
        help="processes that train at a time, one thread each (by default one)",
    )
    add("--scan", action="store_true", help="train what is missing of the scan of learning rates, too")
    add("--quick", action="store_true", help=f"two arms, one seed, {QUICK_STEPS} steps from a start of {QUICK_SUPERVISED}, into a "
        "temporary folder; the other options but --jobs and --json are not looked at")  # fmt: skip
    add("--json", action="store_true", help="the last line is one JSON object of figures")
    add("--train", nargs="+", metavar="ARM:SEED", help=argparse.SUPPRESS)
    add("--supervised", type=positive, default=SUPERVISED, help=argparse.SUPPRESS)
    return parser
