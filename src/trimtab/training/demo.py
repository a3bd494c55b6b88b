"""`make demo`: one run without a fault, one that meets a fault, and the same with a guard; TRL, watched live.

Up to the fault the three runs are equal, number for number. From then on the rollouts of two of them come
from weights that grow old, as from an inference fleet that has slowed down. One of the two has a guard.
Printed are the verdicts, at which steps the fault, the first alarm and the loss of the reward came, and what
the guard did; one report shows the three runs. When the warning does not come first, or the guard does not
save the reward, the demo says so. Exit code 0 when it ran, whatever it shows.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from trimtab.errors import TrimtabError
from trimtab.report.html.run_page import write_html
from trimtab.report.html.run_payload import build_payload
from trimtab.report.run_diagnosis import diagnosis, diagnosis_screen
from trimtab.report.run_view import RunView, load_view
from trimtab.report.terminal.snapshot import live_state
from trimtab.report.terminal.view import follow, render
from trimtab.training.demo_summary import facts_of, fault_words, guard_words, healthy_words

__all__ = ["FAULT_STEP", "RUNS", "SEED", "STEPS", "DemoRun", "child_environment", "run_demo"]


class DemoRun(NamedTuple):
    """One run of the demo."""

    fault: str
    """A fault of `trimtab.training.lab_faults`; `stale` grows up to eight updates old."""
    guard: str | None = None
    """The argument of `watch`."""


RUNS: Mapping[str, DemoRun] = {
    "healthy": DemoRun("none"),
    "stale": DemoRun("stale"),
    "guarded": DemoRun("stale", guard="recommended"),
}
STEPS, FAULT_STEP, SEED = 120, 60, 0
FAULT = "Rollouts grow up to 8 updates old"
PRINT_EVERY = 20  # seconds between two prints of the runs, where the output is a file


def run_one(name: str, folder: Path, options: argparse.Namespace) -> None:
    """Train and watch one run in this process."""
    from trimtab.adapters.trl import watch
    from trimtab.training.lab_faults import FaultPlan, fault_trainer

    plan = FaultPlan(RUNS[name].fault, options.fault_step, options.steps, options.seed)
    trainer = fault_trainer(folder.with_name(f"{folder.name}.trainer"), plan)
    watch(trainer, folder, guard=RUNS[name].guard)
    trainer.train()


def run_demo(options: argparse.Namespace, console: Console) -> Path:
    """Train the runs in child processes of one thread each; return the report's path.

    Raises TrimtabError when a run died.
    """
    start = time.time()
    folder = options.out / time.strftime("%Y%m%d-%H%M%S")
    folder.mkdir(parents=True)
    children = {name: _spawn(name, folder / name, options) for name in RUNS}
    console.print(f"Training {len(RUNS)} runs for {options.steps} steps, one thread each; runs in {folder}")
    try:
        _follow(folder, children, console)
    finally:
        for child in children.values():
            if child.poll() is None:
                child.terminate()
    for name, child in children.items():
        if child.wait() != 0:
            raise TrimtabError(
                f"run {name} ended with code {child.returncode}; its output is in {folder / (name + '.log')}"
            )
    views = [load_view(folder / name) for name in RUNS]
    for view in views:
        screen = "\n".join(diagnosis_screen(diagnosis(view)))
        console.print(screen + "\n", markup=False, highlight=False, soft_wrap=True)
    report = folder / "report.html"
    title = f"{FAULT} from step {options.fault_step} on: without that, with it, and with it and a guard"
    write_html(build_payload(views, title), report)
    lines = summary_lines(views, options.fault_step)
    ending = f"Finished in {time.time() - start:.0f} s. Report: {report}"
    console.print("\n".join([*lines, ending]), markup=False, highlight=False, soft_wrap=True)
    return report


def summary_lines(views: Sequence[RunView], fault_step: int) -> list[str]:
    """Return what came when: a line a run, and one for each action of a guard."""
    return [line for view in views for line in _words_of(view, fault_step)]


def _words_of(view: RunView, fault_step: int) -> list[str]:
    run, facts = RUNS[view.name], facts_of(view)
    if run.fault == "none":
        return [f"{view.name}: {healthy_words(facts)}"]
    lines = [f"{view.name}: {fault_words(facts, FAULT, fault_step)}"]
    return lines if run.guard is None else [*lines, *guard_words(facts, view.actions)]


def child_environment() -> dict[str, str]:
    """Return this process's environment with one thread and no network.

    Two torch processes with two threads each on two cores collapse.
    """
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def _spawn(name: str, folder: Path, options: argparse.Namespace) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "trimtab.training.demo", "--one", name, "--folder", str(folder)]
    numbers = {"--steps": options.steps, "--fault-step": options.fault_step, "--seed": options.seed}
    command += [part for flag, number in numbers.items() for part in (flag, str(number))]
    with (folder.parent / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=child_environment())


def _follow(folder: Path, children: Mapping[str, subprocess.Popen[bytes]], console: Console) -> None:
    """Show the runs until all have ended or one has failed."""
    load = _loader(folder, list(children))

    def done() -> bool:
        codes = [child.poll() for child in children.values()]
        return any(codes) or all(code is not None for code in codes)

    if console.is_terminal:
        follow(load, 1.0, done, console)
        return
    last = time.time()
    while not done():
        time.sleep(0.5)
        if time.time() - last > PRINT_EVERY:
            last, states = time.time(), load()
            if states:
                console.print(render(states))


def _loader(folder: Path, names: Sequence[str]) -> Callable[[], list[dict[str, Any]]]:
    """Return a function that reads what the runs have written so far."""
    views: dict[str, RunView] = {}

    def load() -> list[dict[str, Any]]:
        for name in names:
            if name in views:
                views[name].refresh()
            elif (folder / name / "run.json").exists():
                views[name] = load_view(folder / name)
        return [live_state(view) for view in views.values()]

    return load


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo"), metavar="DIR")
    parser.add_argument("--steps", type=int, default=STEPS, metavar="N")
    parser.add_argument("--fault-step", type=int, default=FAULT_STEP, metavar="N")
    parser.add_argument("--seed", type=int, default=SEED, metavar="N")
    parser.add_argument("--one", choices=list(RUNS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser


def main() -> None:
    """Parse arguments and run; one clear line and exit code 2 when a run could not be trained."""
    options = _parser().parse_args()
    if options.one:
        run_one(options.one, options.folder, options)
        return
    try:
        run_demo(options, Console())
    except TrimtabError as error:
        print(f"trimtab: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
