"""Damage is counted by reason and never fatal; what cannot be read at all is one line that says what to do."""

from __future__ import annotations

import gzip
import json
import sqlite3

import pytest

from trimtab.errors import MetricLogError
from trimtab.metric_logs import read_metric_log


def write(path, *lines):
    path.write_bytes(
        b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)
    )
    return path


def test_every_kind_of_damage_is_counted(tmp_path):
    path = write(
        tmp_path / "m.jsonl",
        {"step": 1, "reward": 0.1, "kl": 0.01},
        b"{not json}\n",
        b"\n",
        b"[1, 2]\n",
        {"reward": 9.0},
        {"step": "two", "reward": 9.0},
        {"step": 2.5, "reward": 9.0},
        {"step": 3, "reward": "much", "kl": 0.03},
        b'{"step": 4, "reward": 0.4, "note": "\xff\xfe"}\n',
        {"step": 2, "reward": 0.2},
        {"step": 4, "kl": 0.04},
        {"step": 4, "kl": 0.05},
        {"step": 5, "reward": True, "kl": [1]},
        b'{"step": 6, "rew',
    )
    log = read_metric_log(path)
    assert log.rows == [
        (1, {"reward": 0.1, "kl": 0.01}),
        (2, {"reward": 0.2}),
        (3, {"kl": 0.03}),
        (4, {"reward": 0.4, "kl": 0.05}),
        (5, {}),
    ]
    assert log.excluded == {
        "malformed lines": 1,
        "lines that are not JSON objects": 1,
        "lines with bytes that are not UTF-8": 1,
        "truncated last line": 1,
        "rows without a step": 1,
        "rows whose step is not a whole number up to 2**53 ('two', 2.5)": 2,
        "rows out of order, sorted": 1,
        "values that are not numbers": 3,
        "values overwritten by a later row of the same step": 1,
    }


def test_a_restart_that_repeats_steps_counts_for_its_later_life(tmp_path):
    first = [{"step": s, "reward": 0.0} for s in range(10)]
    second = [{"step": s, "reward": 1.0} for s in range(6, 14)]
    log = read_metric_log(write(tmp_path / "m.jsonl", *first, *second))
    assert [row["reward"] for _, row in log.rows] == [0.0] * 6 + [1.0] * 8
    assert log.excluded == {
        "rows superseded: the log goes on from step 6 again (a resume or a restart)": 4,
    }


def test_huge_numbers_are_infinite_and_alarm(tmp_path):
    path = write(tmp_path / "m.jsonl", b'{"step": 1, "kl": ' + b"9" * 400 + b"}\n")
    assert read_metric_log(path).rows == [(1, {"kl": float("inf")})]


def test_csv_lines_of_another_width_are_counted(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("step,reward,kl\n1,0.5,0.1\n2,0.5\n3,0.5,0.1,7\n4,,0.2\n5,0.5,0.3\n6,0.5,0.3\n")
    log = read_metric_log(path)
    assert [step for step, _ in log.rows] == [1, 4, 5, 6]
    assert log.excluded == {"malformed lines": 2, "empty cells read as not logged": 1}


def bad_files(tmp_path):
    """name -> (path, a word the message must hold)"""
    found = {}

    def file(name, data, word):
        (tmp_path / name).write_bytes(data)
        found[name] = (tmp_path / name, word)

    file("empty.jsonl", b"", "empty")
    file("blank.csv", b"  \n\n", "empty")
    file("noise.bin", bytes(range(256)) * 20, "is not a known log")
    file("prose.txt", b"Dear diary,\ntoday the loss went down.\n", "no row to read")
    file("nostep.jsonl", b'{"reward": 1.0}\n', "no row has a step")
    file("unknown.jsonl", b'{"step": 1, "zorp": 1.0}\n', "--map NAME=KEY")
    file("lines.jsonl", b"{broken\n{worse\n", "cannot be read|no row to read")
    file("short.parquet", b"PAR1garbagePAR1", "Parquet")
    file("short.gz", gzip.compress(b'{"step": 1}' * 100)[:-9], "damaged gzip")
    file("fake.db", b"SQLite format 3\0" + b"\0" * 200, "SQLite")
    file("zipped.gz", gzip.compress(b"PAR1" + b"x" * 50), "unpack it first")
    file("deep.json", b"[" * 100_000, "cannot be read as json")
    store = sqlite3.connect(tmp_path / "other.db")
    store.execute("create table t (a)")
    store.commit()
    store.close()
    found["other.db"] = (tmp_path / "other.db", "neither MLflow's nor trackio's")
    found["missing"] = (tmp_path / "missing", "does not exist")
    (tmp_path / "void").mkdir()
    found["void"] = (tmp_path / "void", "neither a trimtab run folder")
    (tmp_path / "two").mkdir()
    for name in ("a.csv", "b.csv"):
        (tmp_path / "two" / name).write_text("step,kl\n1,2\n")
    found["two"] = (tmp_path / "two", "several files")
    return found


NAMES = [
    "empty.jsonl",
    "blank.csv",
    "noise.bin",
    "prose.txt",
    "nostep.jsonl",
    "unknown.jsonl",
    "lines.jsonl",
    "short.parquet",
    "short.gz",
    "fake.db",
    "zipped.gz",
    "deep.json",
    "other.db",
    "missing",
    "void",
    "two",
]


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_read_is_one_clear_line(tmp_path, name):
    path, word = bad_files(tmp_path)[name]
    with pytest.raises(MetricLogError, match=word) as caught:
        read_metric_log(path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("kwargs", "word"),
    [
        ({"framework": "keras"}, "unknown framework 'keras'; one of trl, verl"),
        ({"format": "xls"}, "unknown format 'xls'; one of jsonl"),
        ({"mapping": {"rewrad": "kl"}}, "close: reward"),
        ({"mapping": {"reward": "rewrad"}}, "no number under 'rewrad'"),
        ({"framework": "verl"}, "no key of verl"),
        ({"format": "parquet"}, "Parquet"),
        ({"format": "wandb"}, "no row to read"),
        ({"format": "tensorboard"}, "no row to read"),
        ({"format": "trackio"}, "SQLite"),
        ({"format": "json"}, "json"),
    ],
)
def test_a_wrong_wish_is_one_clear_line(tmp_path, kwargs, word):
    path = write(tmp_path / "m.jsonl", {"step": 1, "kl": 0.1}, {"step": 2, "kl": 0.1})
    with pytest.raises(MetricLogError, match=word):
        read_metric_log(path, **kwargs)


def test_a_lone_file_in_a_folder_is_read(tmp_path):
    write(tmp_path / "metrics.jsonl", {"step": 1, "kl": 0.1})
    (tmp_path / "config.json").write_text("{}")
    assert read_metric_log(tmp_path).rows == [(1, {"kl": 0.1})]
