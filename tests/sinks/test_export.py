"""`trimtab export`: a recorded run in a tracker's own files, whole, and nothing twice."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from pathlib import Path

import numpy as np
import pytest

import trimtab
from tests.sinks import readback
from tests.support import cli, make_batch, running, write_run

TRACKERS = ("tensorboard", "wandb", "mlflow", "trackio")
for library in (*TRACKERS, "sqlalchemy"):
    pytest.importorskip(library, reason="trackers are in the extras wandb, tensorboard, mlflow and trackio")
OFFLINE = {"MLFLOW_DISABLE_TELEMETRY": "true", "WANDB_SILENT": "true", "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("export") / "run", steps=12)


def numbers_of(tracker: str, target: Path) -> readback.Numbers:
    if tracker == "mlflow":
        return readback.mlflow_numbers(target)
    if tracker == "trackio":
        return readback.trackio_numbers(target / "trimtab.db")
    return {"wandb": readback.wandb_numbers, "tensorboard": readback.tensorboard_numbers}[tracker](target)


@pytest.mark.parametrize("tracker", ["wandb", "trackio"])
def test_an_export_has_every_number_and_a_second_one_adds_nothing(
    tmp_path: Path, run: Path, tracker: str
) -> None:
    """In a process of its own, as the command is used: these libraries hold state of their process."""
    target = tmp_path / "target"
    command = [sys.executable, "-m", "trimtab.cli", "export", str(run), "--to", tracker, "-o", str(target)]
    with running(command, 120, env=os.environ | OFFLINE) as child:
        out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    stored = readback.store_numbers(run)
    assert out == f"wrote {target}: steps 0 to 11, {len(stored)} numbers\n"
    theirs = numbers_of(tracker, target)
    assert theirs.keys() == stored.keys()
    assert all(readback.same(theirs[key], stored[key]) for key in stored)
    again = cli(
        "export", run, "--to", "tensorboard", "-o", target
    )  # the mark is the target's, whatever the tracker
    assert again.stdout == f"wrote {target}: nothing new, 0 numbers\n"


def test_tensorboard_goes_on_where_an_export_ended(tmp_path: Path) -> None:
    folder, target = tmp_path / "run", tmp_path / "tb"
    rng = np.random.default_rng(0)
    with trimtab.open_run(folder, strict=True) as run:
        for step in range(8):
            run.observe(make_batch(rng, step=step))
            run.flush(step, {"reward": 0.1 * step})
            if step == 4:
                first = cli("export", folder, "--to", "tensorboard", "-o", target)
                half = readback.store_numbers(folder)
    second = cli("export", folder, "--to", "tensorboard", "-o", target)
    stored = readback.store_numbers(folder)
    assert first.stdout == f"wrote {target}: steps 0 to 4, {len(half)} numbers\n"
    # readings that close when the run settles may belong to an exported step; each comes once all the same
    assert second.stdout.endswith(f" to 7, {len(stored) - len(half)} numbers\n")
    accumulator = readback.accumulate(target)
    scalars = [(one.step, tag) for tag in accumulator.Tags()["scalars"] for one in accumulator.Scalars(tag)]
    assert len(scalars) == len(set(scalars)) == len(stored)
    assert set(scalars) == stored.keys()
    texts = accumulator.Tags()["tensors"]
    assert "trimtab/verdict/text_summary" in texts


def test_mlflow_takes_an_export_once_and_finds_its_run_again(tmp_path: Path, run: Path) -> None:
    target = tmp_path / "deep" / "mlflow.db"
    done = cli("export", run, "--to", "mlflow", "-o", target, "--only", "trimtab/metrics/*")
    assert (done.returncode, done.stdout) == (0, f"wrote {target}: steps 0 to 11, 36 numbers\n")
    Path(f"{target}.trimtab.json").unlink()  # the mark is lost: MLflow's own rows are unique
    cli("export", run, "--to", "mlflow", "-o", target, "--only", "trimtab/metrics/*")
    with sqlite3.connect(target) as file:
        assert file.execute("select count(*) from metrics").fetchone() == (36,)
        assert file.execute("select count(*) from runs").fetchone() == (1,)
    stored = {key: value for key, value in readback.store_numbers(run).items() if "/metrics/" in key[1]}
    assert readback.mlflow_numbers(target) == stored


def test_several_ranks_are_exported_merged(tmp_path: Path) -> None:
    from trimtab.report.run_view import load_view

    folder = tmp_path / "run"
    for rank in (0, 1):
        rng = np.random.default_rng(rank)
        with trimtab.open_run(folder, rank=rank, strict=True) as run:
            for step in range(10):
                run.observe(
                    make_batch(
                        rng, sequences=24, step=step, episode_id=np.arange(24) + 1000 * step + 100 * rank
                    )
                )
                run.flush(step, {"reward": 0.5})
    assert cli("export", folder, "--to", "tensorboard", "-o", tmp_path / "tb").returncode == 0
    theirs = readback.tensorboard_numbers(tmp_path / "tb")
    merged = load_view(folder).series("drift/p99", "all")
    assert len(merged) >= 2
    for one in merged:
        assert theirs[one.step, "trimtab/all/drift/p99"] == float(np.float32(f"{one.value:.7g}"))


def test_an_export_into_a_place_that_cannot_be_says_so(tmp_path: Path, run: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for arguments, text in (
        (
            ("--to", "grafana", "-o", tmp_path / "x"),
            "--to grafana is unknown; one of wandb, tensorboard, mlflow, trackio",
        ),
        (("--to", "tensorboard", "-o", file), f"{file} is a file; give a folder"),
        (
            ("--to", "mlflow", "-o", tmp_path),
            f"{tmp_path} is a folder; give a file of SQLite, as -o mlflow.db",
        ),
    ):
        done = cli("export", run, *arguments)
        assert (done.returncode, done.stderr) == (2, f"trimtab: {text}\n")
    mark = Path(f"{tmp_path / 'tb'}.trimtab.json")
    mark.write_text("[]")
    done = cli("export", run, "--to", "tensorboard", "-o", tmp_path / "tb")
    assert done.returncode == 2
    assert done.stderr.startswith(f"trimtab: {mark} cannot be read (TypeError): remove it")


def test_an_export_that_fails_goes_on_later(tmp_path: Path, run: Path) -> None:
    from trimtab.errors import SinkError
    from trimtab.report.run_view import load_view
    from trimtab.sinks.run_export import export_run

    class Memory:
        name = "memory"
        fails_at = 5

        def __init__(self) -> None:
            self.points: list[tuple[int, str]] = []

        def open(self, run) -> None: ...

        def write(self, record) -> int:
            if record.step == self.fails_at:
                raise ConnectionResetError("gone")
            self.points += [(record.step, point.name) for point in record.points]
            return 0

        def flush(self) -> None: ...

        def close(self) -> None: ...

    sink, target = Memory(), tmp_path / "memory"
    with pytest.raises(
        SinkError, match=r"failed after step 4 \(ConnectionResetError: gone\); run it again to go on"
    ):
        export_run(load_view(run), sink, target)
    sink.fails_at = -1
    done = export_run(load_view(run), sink, target)
    assert (done.first_step, done.last_step) == (5, 11)
    assert sorted(sink.points) == sorted(readback.store_numbers(run))


def test_a_moved_run_is_the_same_run(tmp_path: Path, run: Path) -> None:
    cli("export", run, "--to", "tensorboard", "-o", tmp_path / "tb")
    shutil.copytree(run, tmp_path / "moved" / "run")
    again = cli("export", tmp_path / "moved" / "run", "--to", "tensorboard", "-o", tmp_path / "tb")
    assert again.stdout == f"wrote {tmp_path / 'tb'}: nothing new, 0 numbers\n"
    (mark,) = json.loads(Path(f"{tmp_path / 'tb'}.trimtab.json").read_text())["runs"].values()
    assert mark["step"] == 11


@pytest.mark.parametrize("tracker", ["mlflow", "trackio", "tensorboard"])
def test_an_address_is_refused_and_not_shown(
    tmp_path: Path, run: Path, tracker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli("export", run, "--to", tracker, "-o", "http://user:SECRET@127.0.0.1:8921/x")
    assert (done.returncode, done.stdout) == (2, "")
    wanted = "a file of SQLite, as -o mlflow.db" if tracker == "mlflow" else f"a folder, as -o {tracker}"
    assert done.stderr == (
        f"trimtab: -o is an address (http:, not shown), and export writes files: give {wanted}\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_an_sqlite_address_names_its_file(tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli("export", run, "--to", "mlflow", "-o", "sqlite:///q.db", "--only", "trimtab/metrics/loss")
    assert (done.returncode, done.stdout) == (0, "wrote q.db: steps 0 to 11, 12 numbers\n"), done.stderr
    assert len(readback.mlflow_numbers(tmp_path / "q.db")) == 12


@pytest.mark.parametrize("tracker", TRACKERS)
def test_a_target_that_cannot_be_written_is_refused_first(run: Path, tracker: str) -> None:
    done = cli("export", run, "--to", tracker, "-o", "/proc/x.db")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "trimtab: /proc/x.db cannot be written: No such file or directory\n"


def test_a_file_of_something_else_is_not_touched(tmp_path: Path, run: Path) -> None:
    (tmp_path / "notes.db").write_text("my notes, longer than a header")
    done = cli("export", run, "--to", "mlflow", "-o", tmp_path / "notes.db")
    text = f"trimtab: {tmp_path / 'notes.db'} is not a file of SQLite; give another one, as -o mlflow.db\n"
    assert (done.returncode, done.stderr) == (2, text)


def test_a_pattern_that_fits_nothing_names_the_nearest(tmp_path: Path, run: Path) -> None:
    target = tmp_path / "tb"
    for pattern, near in (("metrics/los", "trimtab/metrics/loss"), ("nomatch/*", "trimtab/")):
        done = cli(
            "export",
            run,
            "--to",
            "tensorboard",
            "-o",
            target,
            "--only",
            "trimtab/metrics/*",
            "--only",
            pattern,
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"trimtab: --only '{pattern}' fits no name of {run}; nearest: {near}")
        assert done.stderr.count("\n") == 1
    assert not target.exists()
