"""Archives of recorded runs: equal files give equal bytes, what is recorded is added, and what is damaged or hostile is an error of one line."""

from __future__ import annotations

import os
import zipfile

import pytest
from reproduce.archives import arm_of, files_below, main, pack, recording, unpacked

from trimtab.errors import RunError


def make_run(folder, text="{}"):
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(text)
    (folder / "steps.r0.s0.jsonl.gz").write_bytes(b"packed already")


@pytest.fixture
def store(tmp_path):
    for seed in range(2):
        make_run(tmp_path / "plain" / "tuning" / f"open-s{seed}", f"{seed}" * 100)
    make_run(tmp_path / "plain" / "test" / "open_hot-s1")
    assert main([str(tmp_path / "plain"), str(tmp_path / "store")]) == 0
    return tmp_path / "store"


def test_an_archive_an_arm_unpacks_to_the_same_files(store, tmp_path):
    assert {path.name for path in store.iterdir()} == {"open.zip", "open_hot.zip"}
    plain, again = tmp_path / "plain", unpacked(store)
    assert [path.relative_to(again) for path in files_below(again)] == [
        path.relative_to(plain) for path in files_below(plain)
    ]
    assert [path.read_bytes() for path in files_below(again)] == [
        path.read_bytes() for path in files_below(plain)
    ]
    assert unpacked(store) == again
    assert unpacked(plain) == plain


def test_bytes_follow_from_names_and_contents_alone(store, tmp_path):
    files = files_below(tmp_path / "plain" / "tuning")
    for file in files:
        os.utime(file, (1e9, 1e9))
        file.chmod(0o600)
    pack(tmp_path / "plain", reversed(files), tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == (store / "open.zip").read_bytes()


def test_finished_runs_are_added_even_when_interrupted_and_unfinished_ones_are_not(store):
    hot = (store / "open_hot.zip").read_bytes()

    def finished(bank):
        return [
            file
            for folder in bank.glob("*/*")
            if (folder / "run.json").exists()
            for file in files_below(folder)
        ]

    with pytest.raises(KeyboardInterrupt), recording(store, finished) as bank:  # noqa: PT012
        make_run(bank / "tuning" / "open-s2")
        (bank / "test" / "open-s3").mkdir()
        (bank / "test" / "open-s3" / "steps.jsonl").write_text("half")
        raise KeyboardInterrupt
    with zipfile.ZipFile(store / "open.zip") as archive:
        assert {name.split("/")[1] for name in archive.namelist()} == {"open-s0", "open-s1", "open-s2"}
    assert (store / "open_hot.zip").read_bytes() == hot
    assert arm_of(next(bank.glob("test/open_hot-s1/run.json")).relative_to(bank)) == "open_hot"


def test_a_plain_folder_is_recorded_into_as_it_is(tmp_path):
    with recording(tmp_path / "bank", lambda bank: pytest.fail("nothing is to be packed")) as bank:
        assert bank == tmp_path / "bank"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["../outside"], "outside its folder"),
        (["/outside"], "outside its folder"),
        (["a"] * 2001, "more than 2000 files"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_hostile_archive_is_refused(names, expected, tmp_path):
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    with pytest.raises(RunError, match=expected):
        unpacked(tmp_path)
    assert not (tmp_path.parent / "outside").exists()


def test_damage_is_an_error_of_one_line(store):
    data = bytearray((store / "open.zip").read_bytes())
    data[60] ^= 255
    for damaged in (bytes(data), bytes(data[:-40]), b""):
        (store / "open.zip").write_bytes(damaged)
        unpacked.cache_clear()
        with pytest.raises(RunError, match=r"open.zip is damaged: .*; restore it \(git restore\)"):
            unpacked(store)
