"""kill -9 of real processes at random moments of saving, restoring and resuming of a ring of stable states.

    python -m tests.guard.ring_kills FOLDER COUNT SEED

A fork is killed in each round, and this process looks at what it left: every state that is offered is whole, its
content is that of its step, and no state is lost that was whole before. Prints one JSON line.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

import numpy as np

from trimtab.guard.stable_states import StateRing
from trimtab.guard.state_files import checksum

WORDS = 60_000  # of each file, 480 kB


class Weights:
    """Controls whose state is arrays of one step, so that a mixture of two steps shows."""

    def __init__(self) -> None:
        self.step = 0

    def save(self, folder: Path) -> None:
        for name in ("weights", "optimizer", "random"):
            (folder / f"{name}.bin").write_bytes(content(self.step))

    def restore(self, folder: Path) -> None:
        steps = {int(np.frombuffer(path.read_bytes(), np.int64)[0]) for path in folder.iterdir()}
        (self.step,) = steps


def content(step: int) -> bytes:
    return (step + np.zeros(WORDS, np.int64)).tobytes()


def work(folder: Path, pipe: int) -> None:
    """Resume, then save and now and then restore, for ever. A letter goes to the pipe as each phase begins."""
    os.write(pipe, b"o")
    states, weights = StateRing(folder, size=3), Weights()
    last = states.last_stable(10**9)
    if last is not None:
        assert states.guard_state(last) == {"step": last}
        states.restore(last, weights)
        assert weights.step == last
    while True:
        os.write(pipe, b"s")
        weights.step += 1
        word = "incident" if weights.step % 5 == 0 else "stable"
        states.keep(weights.step, word, weights, {"step": weights.step})
        assert not states.failure
        os.write(pipe, b"k" + weights.step.to_bytes(4, "little"))
        if weights.step % 3 == 0:
            os.write(pipe, b"r")
            last_step, target = weights.step, states.last_stable(weights.step - 1)
            for _ in range(20 if target is not None else 0):
                states.restore(target, weights)
                assert weights.step == target
            weights.step = last_step  # the counter of steps goes on
        time.sleep(0.001)


def check(folder: Path) -> list[int]:
    """Steps of the states that a new process is offered."""
    for state in (path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        files = json.loads((state / "manifest.json").read_text())["files"]
        assert all(checksum(state / name) == number for name, (_, number) in files.items())
    states, weights, steps = StateRing(folder, size=3), Weights(), []
    bound = 10**9
    while (step := states.last_stable(bound)) is not None:
        stored = next(s for s in states._states if s.step == step)
        weights.restore(stored.trainer)
        assert weights.step == step == stored.guard()["step"]
        bound, steps = step, [step, *steps]
    states.close()
    return steps


def kill_once(folder: Path, delay: float) -> tuple[str, list[int]]:
    """Kill a fork `delay` seconds after it began; the phase it was in, and the steps it had said were saved."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            work(folder, write)
        finally:
            traceback.print_exc()
            os._exit(3)
    os.close(write)
    os.read(read, 1)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status), "the child ended by itself, with an error"
    rest = b""
    while piece := os.read(read, 65536):
        rest += piece
    os.close(read)
    phase, saved, index = "o", [], 0
    while index < len(rest):
        letter = chr(rest[index])
        if letter == "k":
            saved.append(int.from_bytes(rest[index + 1 : index + 5], "little"))
            index += 4
        phase, index = letter, index + 1
    return phase, saved


def main(folder: Path, count: int, seed: int) -> dict[str, int]:
    """Kill `count` times, and on a slow machine up to three times as often: each phase is to be met thrice."""
    rng, phases, met = random.Random(seed), Counter(), ("resume", "save", "restore")
    round_number = -1
    while (round_number := round_number + 1) < count or (
        min(phases[name] for name in met) < 3 and round_number < 3 * count
    ):
        # a third of the kills while a process resumes
        delay = rng.uniform(0, 0.008) if round_number % 3 == 0 else rng.uniform(0, 0.3)
        phase, saved = kill_once(folder, delay)
        phases[{"o": "resume", "s": "save", "k": "between", "r": "restore"}[phase]] += 1
        offered = check(folder)
        stable = [step for step in saved if step % 5]
        if stable and phase == "k":  # the state it had just announced is there
            assert (offered and offered[-1] >= stable[-1]) or saved[-1] % 5 == 0, (offered, saved)
        assert offered or not stable, (offered, saved)
    leftovers = sum(
        path.suffix == ".tmp" or path.name.startswith((".writing", ".dropped")) for path in folder.iterdir()
    )
    return {"kills": round_number, "leftovers": leftovers, **phases}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
