"""Do learning curves over episodes coincide over batch sizes? PPO against PPO-EWMA, the batch-size rules on and off; then docs/reference/ppo-ewma-results.md.

    python reproduce/ppo_ewma.py [--seeds N] [--arms NAME ...] [--bank DIR] [--page FILE] [--quick] [--json]

The bare command trains nothing: every run it would record is in reproduce/invariance/runs, and it writes its section of the page and the
figure from them. Resumable: a run that reached its end is not repeated; a missing one takes 7 to 30 seconds of one core, so `--bank` with an empty folder
records all of them anew. One folder a run, <bank>/<arm>-x<factor>-s<seed>, with run.json (the repository's are archives, one an arm). Of another bank the page is
<bank>-papers.md, beside it. A run that was stopped (Ctrl-C too) begins anew; a folder that is damaged, or that this script did not leave,
is an error (exit 2) and is neither trained over nor removed.
`--quick`: two arms at every batch size, one seed, few episodes, into a temporary folder; it checks that everything runs and claims nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from reproduce.interrupt import said, say_interrupted

if __name__ == "__main__":
    say_interrupted("ppo_ewma")
    # one thread: at these sizes a second one costs more than it does; the model and the data are in the package
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    os.environ.update(TRL_EXPERIMENTAL_SILENCE="1", HF_HUB_DISABLE_PROGRESS_BARS="1")

from reproduce.archives import recording
from reproduce.invariance.arms import ARMS, CHECKPOINT, EPISODES, SEEDS, Cell, cells_of, check_episodes
from reproduce.invariance.store import check_bank, finished, finished_files
from reproduce.options import positive
from trimtab.errors import RunError, TrimtabError

ROOT = Path(__file__).parents[1]
BANK, PAGE = ROOT / "reproduce" / "invariance" / "runs", ROOT / "docs" / "reference" / "ppo-ewma-results.md"
QUICK_ARMS = ("ppo", "ewma_rules")


def main() -> int:
    """Train what is missing, then write the section; 1 when a run failed, 2 for an error, 130 when interrupted."""
    options = _parser().parse_args()
    try:
        if not options.quick:
            page = page_of(options.bank, options.page)
            with recording(
                options.bank, finished_files, lambda member: member.parts[0].split("-")[0]
            ) as bank:
                return _all(options, bank, page)
        with tempfile.TemporaryDirectory() as scratch:
            options.seeds, options.episodes, options.arms = 1, CHECKPOINT, list(QUICK_ARMS)
            bank = Path(scratch) / "bank"
            return _all(options, bank, page_of(bank, None))
    except (TrimtabError, OSError) as error:
        print(f"ppo_ewma: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(said("ppo_ewma"), file=sys.stderr)
        return 130


def _all(options: argparse.Namespace, bank: Path, page: Path) -> int:
    from reproduce.invariance.page import check_page, write_page

    check_page(page)
    failed = train_all(cells_of(options.arms, options.seeds), bank, check_episodes(options.episodes))
    figures = write_page(bank, page)
    for name, value in figures.items():
        print(f"{name:32s} {'undecided' if value is None else value}")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    if options.json:
        print(json.dumps({"figures": figures}))
    return 1 if failed else 0


def train_all(cells: list[Cell], bank: Path, episodes: int) -> list[str]:
    """Train what is missing, one after another; the names of the runs that failed.

    The whole bank is looked at first: RunError for a damaged run in it, before anything is trained.
    """
    check_bank(bank)
    todo = [cell for cell in cells if not finished(bank, cell, episodes)]
    print(f"{len(cells) - len(todo)} runs are there, {len(todo)} to do, in {bank}", flush=True)
    failed: list[str] = []
    if not todo:
        return failed
    run_one = trainer_of_one()
    for cell in todo:
        try:
            run_one(cell, bank, episodes)
        except (TrimtabError, OSError):
            raise
        except (
            Exception
        ) as error:  # weights that are no numbers any more, say; the other runs are still worth having
            failed.append(cell.name)
            print(f"{cell.name}: failed: {type(error).__name__}: {' '.join(str(error).split())}", flush=True)
        else:
            print(f"{cell.name}: done", flush=True)
    return failed


def trainer_of_one() -> Callable[[Cell, Path, int], None]:
    """torch and TRL are loaded only where something is trained."""
    from reproduce.invariance.train import run_one

    return run_one


def page_of(bank: Path, asked: Path | None) -> Path:
    """docs/reference/ppo-ewma-results.md is written from the repository's runs alone; any other bank has its page beside it, or where it is asked for."""
    own = bank.resolve() == BANK.resolve()
    page = asked or (PAGE if own else bank.resolve().with_name(bank.resolve().name + "-papers.md"))
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
    add = parser.add_argument
    add(
        "--seeds",
        type=positive,
        default=SEEDS,
        metavar="N",
        help=f"seeds 0 to N-1 of each arm (by default {SEEDS}, which are recorded)",
    )
    add(
        "--arms",
        nargs="+",
        choices=list(ARMS),
        default=list(ARMS),
        metavar="NAME",
        help=f"train what is missing of these arms alone (the page always covers every run of the bank): {', '.join(ARMS)}",
    )
    add(
        "--episodes",
        type=positive,
        default=EPISODES,
        metavar="N",
        help=f"length of the runs that are trained, a multiple of {CHECKPOINT} (by default {EPISODES}); a recorded run of another length is an error",
    )
    add(
        "--bank",
        type=Path,
        default=BANK,
        metavar="DIR",
        help="folder the runs are read from and recorded in (by default reproduce/invariance/runs)",
    )
    add(
        "--page",
        type=Path,
        metavar="FILE",
        help="page whose section is written (by default docs/reference/ppo-ewma-results.md, and <bank>-papers.md of another bank); the figure in the folder of the same name",
    )
    add(
        "--quick",
        action="store_true",
        help=f"{' and '.join(QUICK_ARMS)} at every batch size, one seed, {CHECKPOINT} episodes, into a temporary folder; the other options but --json are not looked at",
    )
    add("--json", action="store_true", help="the last line is one JSON object of figures")
    return parser  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
