"""`make demo`: two arms of the lab side by side under TRL, watched live; then a verdict for each and one
report.

The arms differ in how tools word their answers, and in the token limit of an episode that leaves room for
them. What the run shows is printed as it is: when the open arm's post-tool tail is not the larger one beyond
the intervals of the last window, the demo says so. Exit code 0 when it ran, whatever the verdict.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from trimtab.errors import TrimtabError
from trimtab.report.html.run_page import write_html
from trimtab.report.html.run_payload import build_payload
from trimtab.report.run_diagnosis import diagnosis, diagnosis_screen
from trimtab.report.run_view import RunView, load_view
from trimtab.report.terminal.snapshot import live_state
from trimtab.report.terminal.view import follow, render
from trimtab.types import Reading

ARMS = ("constrained", "open")
# tokens: the lab writes 100 to 350 a step after a tool result, so windows close every few steps
DEMO_WINDOW = 600


def run_arm(arm: str, folder: Path, steps: int, seed: int) -> None:
    """Train and watch one arm in this process."""
    from trimtab.training.lab_grpo import lab_trainer, watch_lab

    calls: list[dict[str, Any]] = []
    trainer = lab_trainer(
        arm, folder.with_name(f"{folder.name}.trainer"), steps=steps, seed=seed, calls=calls
    )
    watch_lab(
        trainer, folder, calls, reference_rows=1.0, probe_every=5, min_tokens=DEMO_WINDOW, state_every=2
    )
    trainer.train()


def run_demo(out: Path, steps: int, seed: int, console: Console) -> Path:
    """Both arms as child processes, one thread each; returns the report's path. TrimtabError when an arm
    died.
    """
    start = time.time()
    folder = out / time.strftime("%Y%m%d-%H%M%S")
    folder.mkdir(parents=True)
    children = {arm: _spawn(arm, folder / arm, steps, seed) for arm in ARMS}
    console.print(f"Training two arms for {steps} steps, one thread each; runs in {folder}")
    try:
        _follow(folder, children, console)
    finally:
        for child in children.values():
            if child.poll() is None:
                child.terminate()
    for arm, child in children.items():
        if child.wait() != 0:
            raise TrimtabError(
                f"arm {arm} ended with code {child.returncode}; its output is in {folder / (arm + '.log')}"
            )
    views = [load_view(folder / arm) for arm in ARMS]
    for view in views:
        console.print(
            "\n".join(diagnosis_screen(diagnosis(view))), markup=False, highlight=False, soft_wrap=True
        )
        console.print()
    report = folder / "report.html"
    write_html(build_payload(views, "Constrained against open-ended tool outputs"), report)
    console.print(_comparison(*views), markup=False, soft_wrap=True)
    console.print(f"Finished in {time.time() - start:.0f} s. Report: {report}", markup=False, soft_wrap=True)
    return report


def child_environment() -> dict[str, str]:
    """Return this process's environment with one thread and no network.

    Two torch processes with two threads each on two cores collapse.
    """
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def _spawn(arm: str, folder: Path, steps: int, seed: int) -> subprocess.Popen[bytes]:
    environment = child_environment()
    command = [sys.executable, "-m", "trimtab.training.demo", "--arm", arm, "--folder", str(folder)]
    with (folder.parent / f"{arm}.log").open("wb") as log:
        return subprocess.Popen(
            [*command, "--steps", str(steps), "--seed", str(seed)], stdout=log, stderr=log, env=environment
        )


def _follow(folder: Path, children: dict[str, subprocess.Popen[bytes]], console: Console) -> None:
    views: dict[str, RunView] = {}

    def load() -> list[dict[str, Any]]:
        for arm in ARMS:
            if arm in views:
                views[arm].refresh()
            elif (folder / arm / "run.json").exists():
                views[arm] = load_view(folder / arm)
        return [live_state(view) for view in views.values()]

    def done() -> bool:
        return all(child.poll() is not None for child in children.values()) or any(
            c.poll() for c in children.values()
        )

    if console.is_terminal:
        follow(load, 1.0, done, console)
        return
    shown = 0.0
    while not done():
        time.sleep(0.5)
        if time.time() - shown > 20:
            shown = time.time()
            states = load()
            if states:
                console.print(render(states))


def _comparison(constrained: RunView, open_ended: RunView) -> str:
    """What the last windows of the two runs show, in words that go no further than their 95 % intervals."""
    readings = [_last(view, name) for name in ("post_tool", "text") for view in (constrained, open_ended)]
    known = [reading for reading in readings if reading is not None]
    if len(known) < len(readings):
        return "Too few tokens after tool results to compare the two arms; nothing is claimed."
    post_c, post_o, text_c, text_o = known
    line = (
        f"Last window, p95 of |drift| in nats (95 % interval): post-tool {_words(post_c)} constrained, "
        f"{_words(post_o)} open; text {_words(text_c)}, {_words(text_o)}."
    )
    if post_o.low > max(post_c.high, text_o.high):
        return (
            line
            + " In this seed the open arm's post-tool tail is above the constrained arm's and its own text "
            "tail."
        )
    return (
        line + " In this window a larger post-tool tail with open outputs is not distinguishable from noise."
    )  # fmt: skip


def _last(view: RunView, name: str) -> Reading | None:
    """The last p95 of |drift| of a slice; None without one, or without an interval."""
    series = view.series("drift/p95", name)
    return series[-1] if series and math.isfinite(series[-1].low) and math.isfinite(series[-1].high) else None


def _words(reading: Reading) -> str:
    return f"{reading.value:.3g} ({reading.low:.3g} to {reading.high:.3g})"


def main() -> None:
    """Parse arguments and run; one clear line and exit code 2 when an arm could not run."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo"))
    parser.add_argument("--steps", type=int, default=110)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--arm", choices=ARMS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.arm:
        run_arm(options.arm, options.folder, options.steps, options.seed)
        return
    try:
        run_demo(options.out, options.steps, options.seed, Console())
    except TrimtabError as error:
        print(f"trimtab: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
