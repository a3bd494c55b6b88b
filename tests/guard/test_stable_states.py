"""The ring of stable states: what is offered, what is dropped, what is refused, and what a killed process leaves."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.guard import ring_kills
from tests.guard.ring_kills import Weights, check
from tests.support import finished
from trimtab.errors import RunError
from trimtab.guard.stable_states import StateRing

ROOT = Path(__file__).parents[2]
STATE_BYTES = 3 * 8 * ring_kills.WORDS


@pytest.fixture
def warnings():
    return []


@pytest.fixture
def ring(tmp_path, warnings):
    return StateRing(tmp_path / "ring", warn=warnings.append)


def keep(ring: StateRing, step: int, verdict: str = "stable", **guard: float) -> None:
    weights = Weights()
    weights.step = step
    ring.keep(step, verdict, weights, {"step": step, **guard})


def restored(ring: StateRing, step: int) -> int:
    weights = Weights()
    ring.restore(step, weights)
    return weights.step


def test_the_newest_stable_state_before_the_onset_is_offered(ring):
    for step, verdict in ((10, "stable"), (20, "stable"), (30, "incident")):
        keep(ring, step, verdict)
    assert [ring.last_stable(onset) for onset in (100, 31, 30, 20, 10)] == [20, 20, 20, 10, None]
    keep(ring, 40, "unsettled")
    assert ring.steps == [20, 30, 40]
    assert ring.last_stable(100) == 20


def test_the_oldest_goes_first_but_never_the_last_stable(ring):
    for step in (10, 20, 30, 40):
        keep(ring, step)
    assert ring.steps == [20, 30, 40]
    for step in (50, 60, 70, 80):
        keep(ring, step, "incident")
    assert ring.steps == [40, 70, 80]
    assert restored(ring, 40) == 40


def test_an_onset_in_the_past_keeps_the_state_before_it(ring):
    for step in (10, 20, 30):
        keep(ring, step)
    ring.suspect(15)
    for step in (40, 50):
        keep(ring, step)
    assert ring.steps == [10, 40, 50]
    assert ring.last_stable(60) == 10
    reopened = StateRing(ring.folder)
    assert reopened.last_stable(60) == 10
    ring.suspect(15, 45)  # it passed at 45
    assert ring.last_stable(60) == 50
    assert ring.last_stable(50) == 10


def test_a_restore_drops_what_came_after_it(ring):
    for step in (10, 20, 30):
        keep(ring, step)
    assert restored(ring, 10) == 10
    assert ring.steps == [10] == StateRing(ring.folder).steps
    keep(ring, 40)
    assert ring.last_stable(50) == 40


def test_the_state_of_the_guard_comes_back(ring):
    keep(ring, 10, loss=math.nan, bound=math.inf)
    state = StateRing(ring.folder).guard_state(10)
    assert math.isnan(state.pop("loss"))
    assert state == {"step": 10, "bound": math.inf}


def test_a_step_that_is_written_twice_counts_once(ring):
    for step in (10, 20, 20):
        keep(ring, step)
    assert ring.steps == [10, 20]
    assert sorted(path.name for path in ring.folder.iterdir() if path.is_dir()) == ["10-1", "20-3"]


def flip(folder: Path) -> None:
    path = folder / "trainer" / "optimizer.bin"
    content = bytearray(path.read_bytes())
    content[-3] ^= 4
    path.write_bytes(content)


def swap_blocks(folder: Path) -> None:
    path = folder / "trainer" / "big.bin"
    content = path.read_bytes()
    path.write_bytes(content[2**20 :] + content[: 2**20])


DAMAGES = {
    "one bit": flip,
    "cut": lambda folder: (folder / "trainer" / "weights.bin").write_bytes(b"\0" * 100),
    "missing": lambda folder: (folder / "trainer" / "random.bin").unlink(),
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "half a manifest": lambda folder: (folder / "manifest.json").write_text('{"format": 1, "st'),
    "zeroed": lambda folder: (folder / "trainer" / "weights.bin").write_bytes(bytes(8 * ring_kills.WORDS)),
    "later format": lambda folder: (folder / "manifest.json").write_text('{"format": 2}'),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("reopened", [False, True])
def test_a_damaged_state_is_not_offered(ring, warnings, damage, reopened):
    keep(ring, 10)
    keep(ring, 20)
    DAMAGES[damage](ring.folder / "20-2")
    if reopened:
        ring = StateRing(ring.folder, warn=warnings.append)
    in_memory = (not reopened and "manifest" in damage) or (not reopened and "format" in damage)
    assert ring.last_stable(100) == (20 if in_memory else 10)
    if not in_memory:
        assert ring.steps == [10]
        with pytest.raises(RunError, match="no whole state of step 20; it has"):
            restored(ring, 20)


def test_blocks_in_another_order_are_damage(ring):
    class Big(Weights):
        def save(self, folder: Path) -> None:
            (folder / "big.bin").write_bytes(b"a" * 2**20 + b"b" * 2**20)

    ring.keep(10, "stable", Big())
    assert ring.last_stable(11) == 10
    swap_blocks(ring.folder / "10-1")  # after it was read once: the time of change gives it away
    assert ring.last_stable(11) is None


def test_a_ring_that_does_not_fit_is_refused_in_one_line(tmp_path):
    free = shutil.disk_usage(tmp_path).free
    with pytest.raises(RunError, match=r"a ring of 3 states of .* GB and one being written need .* are free"):
        StateRing(tmp_path / "a", state_bytes=free // 3)
    with pytest.raises(RunError, match=r"up to .* GB does not fit .* lower max_bytes"):
        StateRing(tmp_path / "b", max_bytes=2 * free)
    with pytest.raises(
        RunError, match=r"states of 1 MB and one being written need 4 MB, and 3 MB are allowed"
    ):
        StateRing(tmp_path / "c", max_bytes=3_000_000, state_bytes=1_000_000)
    with pytest.raises(RunError, match="use 2 or more"):
        StateRing(tmp_path / "d", size=1)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot hold stable states"):
        StateRing(tmp_path / "file")


def test_the_bound_on_bytes_holds(tmp_path, warnings):
    bound = int(3.5 * STATE_BYTES)
    ring = StateRing(tmp_path, size=3, max_bytes=bound, warn=warnings.append)
    for step in range(10, 90, 10):
        keep(ring, step)
        assert sum(p.stat().st_size for p in tmp_path.rglob("*.bin")) <= bound
    assert ring.steps == [60, 70, 80]
    assert not warnings


def test_a_bound_too_small_for_two_states_is_said_once(tmp_path, warnings):
    ring = StateRing(tmp_path, size=2, max_bytes=int(1.5 * STATE_BYTES), warn=warnings.append)
    for step in (10, 20, 30):
        keep(ring, step)
    assert ring.steps == [10]
    assert len(warnings) == 1
    assert "the guard can go back no later than to step 10" in warnings[0]
    assert ring.failure


FULL = """
import resource, signal, sys
from tests.guard.test_stable_states import keep
from trimtab.guard.stable_states import StateRing

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
ring = StateRing(sys.argv[1], warn=print)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
for step in range(1, 9):
    limit = 100_000 if 3 <= step < 7 or sys.argv[2] == "always" else resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    keep(ring, step)
    print("step", step, ring.last_stable(step + 1), bool(ring.failure))
"""


def full_disk(folder: Path, when: str) -> list[str]:
    done = finished([sys.executable, "-c", FULL, str(folder), when], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_training_goes_on_when_the_disk_is_full(tmp_path):
    lines = full_disk(tmp_path, "between")
    steps = [line.split()[2:] for line in lines if line.startswith("step")]
    assert steps == [["1", "False"], ["2", "False"], *[["2", "True"]] * 4, ["7", "False"], ["8", "False"]]
    said = [line for line in lines if not line.startswith("step")]
    assert len(said) == 2
    assert said[0].startswith("the state of step 3 could not be written: File too large: training goes on")
    assert said[0].endswith("the guard can go back no later than to step 2")
    assert said[1] == "stable states are written again"
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["2-2", "7-3", "8-4"]


def test_a_disk_that_is_full_from_the_start_is_not_silence(tmp_path):
    lines = full_disk(tmp_path, "always")
    assert [line.split()[2:] for line in lines if line.startswith("step")] == [["None", "True"]] * 8
    assert lines[0].endswith("the guard can NOT roll back")
    assert check(tmp_path) == []


def test_another_process_may_not_write_to_the_ring(ring):
    keep(ring, 10)
    code = f"from trimtab.guard.stable_states import StateRing; StateRing({str(ring.folder)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert "is the ring of stable states of process" in done.stderr
    assert ring.last_stable(11) == 10


def test_kill_9_at_random_moments_leaves_whole_states(tmp_path):
    command = [sys.executable, "-m", "tests.guard.ring_kills", str(tmp_path), "36", "5"]
    done = finished(command, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    counts = json.loads(done.stdout)
    assert counts["kills"] >= 36
    assert counts["leftovers"] == 0
    assert min(counts[phase] for phase in ("resume", "save", "restore")) >= 3
