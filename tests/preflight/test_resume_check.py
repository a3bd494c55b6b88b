"""A resume is checked against real safetensors and real archives of torch: cut, changed, swapped, of a later step, or killed at the save."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trimtab
from tests.support import cli, make_batch, running

torch = pytest.importorskip("torch", reason="needs the torch extra")
from safetensors.torch import save_file  # noqa: E402

from trimtab.guard.state_files import write_state  # noqa: E402
from trimtab.preflight.resume import ResumeOptions, resume_check  # noqa: E402
from trimtab.report.post_mortem.last_stable import last_stable  # noqa: E402
from trimtab.report.run_view import load_view  # noqa: E402
from trimtab.runs.checkpoints.safetensors_file import safetensors_fault  # noqa: E402

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def save(folder: Path, step: int, *, shards: bool = False) -> Path:
    """A checkpoint as transformers writes one, with real files of safetensors and torch."""
    folder.mkdir(parents=True)
    tensors = {f"layer.{i}.weight": torch.full((64, 64), float(step + i)) for i in range(4)}
    if shards:
        names = list(tensors)
        for shard, mine in zip(SHARDS, (names[:2], names[2:]), strict=True):
            save_file({name: tensors[name] for name in mine}, folder / shard)
        table = {name: SHARDS[i // 2] for i, name in enumerate(names)}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
    else:
        save_file(tensors, folder / "model.safetensors")
    torch.save({"state": tensors}, folder / "optimizer.pt")
    torch.save({"last_epoch": step}, folder / "scheduler.pt")
    torch.save({"cpu": torch.get_rng_state()}, folder / "rng_state.pth")
    state = {"global_step": step, "epoch": step / 7, "train_batch_size": 4}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    (folder / "curriculum.json").write_text(json.dumps({"position": step}))
    return folder


def write(home: Path, *, trouble: int | None = None, shards: bool = False, sampler: Any = None) -> Path:
    """A run of 24 steps with checkpoints of steps 8 and 16; from step `trouble` on its loss is not finite."""
    rng = np.random.default_rng(0)
    settings = {"learning_rate": 1e-6, "hub_token": "hf_abcdefghijkl", "output_dir": "out", "beta": 0.04}
    with trimtab.open_run(home / "run", strict=True, post_mortem=False) as run:
        for step in range(1, 25):
            run.observe(make_batch(rng, sequences=4, step=step))
            bad = trouble is not None and step >= trouble
            run.flush(step, {"reward": 0.5, "loss": float("nan") if bad else 1.0})
            if step in (8, 16):
                folder = save(home / f"checkpoint-{step}", step, shards=shards)
                position = {"epoch": step / 7, "seed": 3, "train_batch_size": 4}
                run.checkpoint(step, folder, position, settings, sampler or {"step": step})
    return home


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return write(tmp_path_factory.mktemp("recorded"))


@pytest.fixture
def home(recorded, tmp_path):
    """A copy: what a test damages is its own. The checkpoint is found by its name where it was moved."""
    return shutil.copytree(recorded, tmp_path / "home")


def check(home: Path, step: int = 16, **options: Any) -> dict[str, Any]:
    return resume_check(home / "run", home / f"checkpoint-{step}", ResumeOptions(**options))


def states(result: dict[str, Any]) -> dict[str, str]:
    return {row["name"]: row["state"] for row in result["checks"]}


def reason(result: dict[str, Any], name: str) -> str:
    return next(row["reason"] for row in result["checks"] if row["name"] == name)


def test_a_whole_checkpoint_is_a_go_and_its_hash_is_sha256sums(home):
    result = check(home)
    assert (result["verdict"], result["exit_code"], result["step"]) == ("go", 0, 16)
    data = (home / "checkpoint-16" / "model.safetensors").read_bytes()
    assert result["weights"] == hashlib.sha256(data).hexdigest()
    assert states(result) == dict.fromkeys(states(result), "go") | {"configuration": "not checked"}
    shown = cli("resume-check", home / "run", home / "checkpoint-16")
    assert shown.returncode == 0
    assert shown.stdout.splitlines()[0] == result["headline"]
    assert result["headline"].startswith(f"GO: {home / 'checkpoint-16'}, step 16: ")


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1000)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-50] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("name", "damage", "check_name", "words"),
    [
        ("model.safetensors", cut, "weights", "model.safetensors is cut: its tensors end at byte"),
        ("model.safetensors", flip, "weights", "model.safetensors has another content than at the save"),
        ("model.safetensors", lambda path: path.write_bytes(b""), "weights", "model.safetensors is empty"),
        ("optimizer.pt", cut, "files", "optimizer.pt is cut or damaged"),
        ("optimizer.pt", Path.unlink, "files", "optimizer.pt is missing"),
        ("rng_state.pth", Path.unlink, "files", "no file of random numbers"),
        (
            "curriculum.json",
            lambda path: path.write_text("{}"),
            "files",
            "curriculum.json has 2 bytes and had",
        ),
        ("trainer_state.json", cut, "step", "trainer_state.json cannot be read"),
        (
            "trainer_state.json",
            lambda p: p.write_text('{"global_step": 12}'),
            "step",
            "step 12 by trainer_state.json",
        ),
    ],
)
def test_what_is_damaged_is_named(home, name, damage, check_name, words):
    path = home / "checkpoint-16" / name
    if damage is cut and name == "trainer_state.json":
        path.write_text(path.read_text()[:-5])
    else:
        damage(path)
    result = check(home)
    assert (result["verdict"], result["exit_code"]) == ("no-go", 1)
    assert words in reason(result, check_name)
    assert f"{check_name}: " in result["headline"]


def test_a_changed_tensor_inside_the_archive_of_the_optimizer_is_seen(home):
    path = home / "checkpoint-16" / "optimizer.pt"
    data = bytearray(path.read_bytes())
    data[data.index(struct.pack("<f", 17.0) * 64) + 99] ^= 1
    path.write_bytes(data)
    for rows in home.glob("run/checkpoints.*"):  # by the checksums of the archive alone
        rows.write_text("")
    assert "optimizer.pt is cut or damaged" in reason(check(home), "files")


def test_a_pickle_is_never_loaded(home, tmp_path):
    marker = tmp_path / "ran"
    code = b"cos\nsystem\n(S'touch " + bytes(str(marker), "ascii") + b"'\ntR."
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        (home / "checkpoint-16" / name).write_bytes(code)
    assert "is not an archive of torch.save" in reason(check(home), "files")
    assert not marker.exists()


def test_a_checkpoint_from_the_trouble_is_a_no_go_that_names_an_earlier_one(tmp_path):
    home = write(tmp_path, trouble=12)
    result = check(home, 16)
    assert result["verdict"] == "no-go"
    text = reason(result, "step")
    assert "step 16 lies in the trouble that began at step 12; the last stable step is 11" in text
    assert str(home / "checkpoint-8") in text
    assert check(home, 8)["verdict"] == "go"


def test_shards_are_compared_one_by_one(tmp_path):
    home = write(tmp_path, shards=True)
    folder = home / "checkpoint-16"
    lines = "".join(
        f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in SHARDS
    )
    assert check(home)["weights"] == hashlib.sha256(lines.encode()).hexdigest()
    shutil.copy(home / "checkpoint-8" / SHARDS[1], folder / SHARDS[1])
    assert f"{SHARDS[1]} has another content" in reason(check(home), "weights")
    (folder / SHARDS[1]).unlink()
    assert f"{SHARDS[1]} is missing" in reason(check(home), "weights")


def test_a_state_of_the_guard_is_checked_by_its_own_sums(home):
    def trainer(folder: Path) -> None:
        save_file({"w": torch.ones(64)}, folder / "weights.safetensors")

    ring = home / "run" / "stable_states"
    ring.mkdir()
    stable, doubted = (
        write_state(ring, (step, 1), word, trainer, {}) for step, word in ((12, "stable"), (20, "incident"))
    )
    assert last_stable(load_view(home / "run")).step == 12
    result = resume_check(home / "run", stable.folder)
    assert (result["verdict"], result["step"]) == ("go", 12)
    assert "kept it as 'incident'" in reason(resume_check(home / "run", doubted.folder), "weights")
    flip(stable.folder / "trainer" / "weights.safetensors")
    assert "not the one that the guard wrote" in reason(resume_check(home / "run", stable.folder), "weights")


def test_settings_are_compared_and_a_wanted_difference_is_accepted(home):
    path = home / "next.yaml"
    path.write_text("training:\n  learning_rate: 1e-6\n  beta: 0.04\noutput_dir: elsewhere\n")
    assert states(check(home, config=path))["configuration"] == "go"
    path.write_text("learning_rate: 5.0e-6\nseed: 4\nignore_data_skip: true\n")
    result = check(home, config=path)
    assert reason(result, "configuration") == "learning_rate is 5e-06 now and was 1e-06"
    assert "ignore_data_skip begins the data anew" in reason(result, "data")
    assert "seed is 4 now and was 3" in reason(result, "data")
    accepted = check(home, config=path, accept=("configuration", "data"))
    assert accepted["verdict"] == "go"
    assert "configuration (accepted): learning_rate" in accepted["headline"]


def test_the_sampler_must_have_the_weights_of_the_checkpoint(home, tmp_path):
    assert "the engine has the weights of step 14, this is of step 16" in reason(
        check(home, sampler_step=14), "sampler"
    )
    digest = check(home)["weights"]
    assert states(check(home, sampler_hash=digest.upper(), sampler_step=16))["sampler"] == "go"
    assert states(check(home, sampler_hash="ab" * 32))["sampler"] == "no-go"
    late = write(tmp_path / "late", sampler={"step": 15})
    assert "at the save the engine had the weights of step 15" in reason(check(late), "sampler")


def test_another_version_of_a_package_is_a_no_go(home):
    path = next(home.glob("run/process.r0.s0.txt"))
    head = json.loads(path.read_text().splitlines()[0])
    head["about"]["versions"]["numpy"] = "1.21.0"
    path.write_text(json.dumps(head) + "\n")
    result = check(home)
    assert (states(result)["versions"], result["verdict"]) == ("no-go", "no-go")
    assert f"numpy 1.21.0 then, {np.__version__} here" in reason(result, "versions")
    head["about"]["versions"]["numpy"] = ".".join([*np.__version__.split(".")[:2], "99"])
    path.write_text(json.dumps(head) + "\n")
    assert states(check(home))["versions"] == "go"  # the third number alone


def test_without_a_record_it_is_undecided_and_says_what_is_missing(home):
    for path in home.glob("run/checkpoints.*"):
        path.write_text("")
    result = check(home)
    assert (result["verdict"], result["exit_code"]) == ("undecided", 2)
    assert "the run recorded no hash at the save" in result["headline"]


KILLED = """
import os, sys, time, trimtab
from pathlib import Path
from trimtab.monitor.ending import checkpoint_recorder

def slow(folder, files):
    os.write(1, b"hashing\\n")
    time.sleep(60)

run = trimtab.open_run(sys.argv[1], post_mortem=False)
for step in range(1, 25):
    run.flush(step, {"reward": 0.5})
    if step == 8:
        run.checkpoint(8, sys.argv[2], {"epoch": 8 / 7})
        while run._ending.checkpoints._hashing:
            run._ending.checkpoints.collect(1.0)
checkpoint_recorder.hash_files = slow
run.checkpoint(16, sys.argv[3], {"epoch": 16 / 7})
time.sleep(60)
"""


def test_kill_9_while_the_weights_are_hashed_loses_no_record(tmp_path):
    first, second = (save(tmp_path / f"checkpoint-{step}", step) for step in (8, 16))
    command = [sys.executable, "-c", KILLED, *map(str, (tmp_path / "run", first, second))]
    with running(command, 120) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "hashing\n"
        child.kill()
    assert check(tmp_path, 8)["verdict"] == "go"
    result = check(tmp_path, 16)
    assert result["verdict"] == "undecided"
    assert "the process ended before it had hashed them" in reason(result, "weights")
    cut(second / "model.safetensors")
    assert check(tmp_path, 16)["verdict"] == "no-go"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "nowhere"), "does not exist"),
        (("run", "run"), "has no weights"),
        (("checkpoint-16", "checkpoint-16"), "is not a run folder"),
        (("run", "checkpoint-16", "--config", "checkpoint-16/model.safetensors"), "cannot be read"),
        (("run", "checkpoint-16", "--accept", "version"), "did you mean versions?"),
    ],
)
def test_bad_input_is_one_line(home, arguments, words):
    paths = [home / one if not one.startswith("-") and one != "version" else one for one in arguments]
    shown = cli("resume-check", *paths)
    assert (shown.returncode, shown.stderr.count("\n")) == (2, 1)
    assert words in shown.stderr


def test_hostile_headers_are_faults_and_never_errors(tmp_path):
    path = tmp_path / "model.safetensors"
    headers: list[Any] = [[], {"a": 1}, {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}},
               {"a": {"dtype": "F32", "shape": [-1], "data_offsets": [8, 4]}},
               {"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}]  # fmt: skip
    for header in headers:
        data = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(data)) + data + bytes(8))
        assert safetensors_fault(path).startswith(("is damaged", "has "))
    path.write_bytes(struct.pack("<Q", 2**63))
    assert "claims" in safetensors_fault(path)
    path.write_bytes(b"abc")
    assert "is cut" in safetensors_fault(path)
    save_file({"a": torch.zeros(3, dtype=torch.bfloat16), "b": torch.zeros(0)}, path)
    assert safetensors_fault(path) == ""
