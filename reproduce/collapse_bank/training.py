"""Train the runs of one cause and seed, and keep their tokens: <raw>/<cause>/<seed>.npz, -twin.npz and -control.npz."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

from reproduce.collapse_bank.batches import RunBatches, load_batches
from reproduce.collapse_bank.events import event_of, finished_falling
from reproduce.collapse_bank.loop import Loop
from reproduce.collapse_bank.regimes import FAULTS, HEALTHY, SLOW, Regime, fault_step, runs_of
from reproduce.collapse_bank.transformer import Weights, load_weights

__all__ = ["raw_file", "train_seed"]


def raw_file(raw: Path, cause: str, seed: int, role: str) -> Path:
    """Return where the tokens of a run are."""
    plain = role == "collapse" or cause == "healthy"
    return raw / cause / (f"{seed}.npz" if plain else f"{seed}-{role}.npz")


def train_seed(raw: Path, causes: Sequence[str], seed: int, steps: int | None = None) -> Iterator[str]:
    """Train what is missing of a seed, and yield one line of words a run. `steps` shortens every run, with the fault in its middle."""
    faults = [
        name for name in causes if name in FAULTS and not raw_file(raw, name, seed, "collapse").exists()
    ]
    if faults or ("healthy" in causes and not raw_file(raw, "healthy", seed, "control").exists()):
        yield from _train_faults(raw, faults, seed, steps)
    slow = [(cause, role) for cause in causes if cause in SLOW for role in runs_of(cause)]
    for cause, role in slow:
        path, regime = raw_file(raw, cause, seed, role), _shortened(getattr(SLOW[cause], role), steps)
        if not path.exists():
            yield _train(_new_run(cause, role, seed, regime), Loop(start_weights(), regime, seed), path)


def _train_faults(raw: Path, faults: Sequence[str], seed: int, steps: int | None) -> Iterator[str]:
    """Train the healthy run up to the fault, each fault's branch from there, and the rest of the healthy run."""
    healthy = _shortened(HEALTHY, steps)
    onset = fault_step(seed) if steps is None else steps // 2
    run, loop = _new_run("healthy", "control", seed, healthy), Loop(start_weights(), healthy, seed)
    while loop.steps_done < onset - 1:
        run.steps.append(loop.step())
    for fault in faults:
        regime = replace(healthy, **FAULTS[fault])
        broken = _new_run(fault, "collapse", seed, regime, onset)
        broken.steps = list(run.steps)
        yield _train(broken, loop.branch(regime), raw_file(raw, fault, seed, "collapse"))
    path = raw_file(raw, "healthy", seed, "control")
    if not path.exists():
        yield _train(run, loop, path)


def _shortened(regime: Regime, steps: int | None) -> Regime:
    return regime if steps is None else replace(regime, steps=min(steps, regime.steps))


def _train(run: RunBatches, loop: Loop, path: Path) -> str:
    while loop.steps_done < loop.regime.steps:
        run.steps.append(loop.step())
        if run.identity["role"] == "collapse" and finished_falling(run.rewards):
            break
    run.save(path)
    return f"{path}: {describe(run)}"


def describe(run: RunBatches) -> str:
    """Return a run's length, cost and event in one line."""
    rewards, event = run.rewards, event_of(run.rewards)
    cpu = sum(batch.numbers["cpu_seconds"] for batch in run.steps)
    text = f"no event, end {sum(rewards[-8:]) / 8:.2f}"
    if event is not None:
        text = f"event at {event.step}, best {event.best:.2f} at {event.best_step}, end {sum(rewards[-8:]) / 8:.2f}"
    return f"{len(rewards)} steps, {cpu / len(rewards):.2f} CPU-s a step, fault {run.identity['fault_step']}, {text}"


def reread(path: Path) -> str:
    """Return the line of a stored run."""
    return describe(load_batches(path))


@cache
def start_weights() -> Weights:
    """Return the shipped agent, loaded once a process."""
    return load_weights()


def _new_run(cause: str, role: str, seed: int, regime: Regime, onset: int | None = None) -> RunBatches:
    return RunBatches(
        {"cause": cause, "role": role, "seed": seed, "fault_step": onset, "regime": asdict(regime)}
    )
