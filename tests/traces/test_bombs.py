"""Inputs that would fill the memory or never end: one line and exit code 2, in a real process of 1.5 GB (issue 17.11)."""

from __future__ import annotations

import base64
import gzip
import json
import os
import resource
import socket
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import duckdb
import pyarrow
import pytest

LIMIT = 3 * 2**29
MiB = 2**20


def _trimtab(*arguments: object, seconds: float = 120) -> tuple[int, str, str]:
    """Exit code, output and errors of the command in a process that may hold 1.5 GB."""
    done = subprocess.run(
        [sys.executable, "-m", "trimtab", *map(str, arguments)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT)),
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "200"},
        capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def _refused(words: str, *arguments: object) -> None:
    code, out, err = _trimtab(*arguments)
    assert code == 2, out + err
    assert words in err
    assert err.count("\n") == 1
    assert "MemoryError" not in err


def _gzip_bomb(path: Path, line: bytes, num_bytes: int) -> Path:
    piece = line * (60 * MiB // len(line))
    member = gzip.compress(piece, 6)
    path.write_bytes(member * (num_bytes // len(piece) + 1))  # members in line are one file
    return path


def _run(folder: Path) -> Path:
    folder.mkdir()
    header = {"trimtab_run": 1, "run_id": "x", "created": 0.0, "trimtab_version": "0", "config": {}}
    (folder / "run.json").write_text(json.dumps(header))
    step = {"step": 1, "time": 0.0, "metrics": {}, "slices": {}, "columns": [], "not_observed": {}, "nonfinite": {}, "costs_s": {}, "failed": False}  # fmt: skip
    (folder / "steps.r0.s0.jsonl").write_text(json.dumps(step) + "\n")
    return folder


def test_a_run_folder_with_a_bomb_of_tool_calls(tmp_path):
    """Issue 17.11: 408 kB of `tools.gz` took 3.7 GB."""
    run = _run(tmp_path / "r")
    row = json.dumps({"step": 1, "name": "a", "result_size": 1, "latency_s": 0.1}).encode() + b"\n"
    _gzip_bomb(run / "tools.r0.s0.jsonl.gz", row, 120 * MiB)
    _refused("expands to more than", "diagnose", run)


def test_a_run_folder_with_a_bomb_of_a_state(tmp_path):
    """Issue 17.11: a zlib state took 1.7 GB."""
    run = _run(tmp_path / "r")
    state = base64.b64encode(zlib.compress(bytes(600 * MiB), 1)).decode()
    (run / "states.r0.s0.jsonl").write_text(json.dumps({"first": 1, "last": 1, "states": state}) + "\n")
    code, _, err = _trimtab("diagnose", run)
    assert code == 2
    assert "MemoryError" not in err


@pytest.mark.parametrize("command", [["diagnose"], ["traces", "diagnose"]])
def test_compressed_logs_that_are_bombs(tmp_path, command):
    """Issue 17.11: metrics of 5 MB took 6.2 GB, traces of 1 MB 1.7 GB."""
    rest = b'"messages": [{"role": "user", "content": "%b"}]' if "traces" in command else b'"note": "%b"'
    row = b'{"step": 1, "reward": 0.5, ' + rest % (b"a" * 500) + b"}\n"
    _refused("expands to more than", *command, _gzip_bomb(tmp_path / "log.jsonl.gz", row, 600 * MiB))


def test_one_line_of_zstandard_that_is_a_bomb(tmp_path):
    """Issue 17.11: Zstandard packs a hundred thousand to one."""
    path = tmp_path / "log.jsonl.zst"
    path.write_bytes(pyarrow.compress(b'{"messages": "' + b"a" * (400 * MiB), "zstd", asbytes=True))
    _refused("expands to more than", "traces", "diagnose", path)


def test_an_inspect_log_that_is_a_bomb(tmp_path):
    """Issue 17.11: an `.eval` of 1.5 MB took 2 GB."""
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("header.json", "{}")
        archive.writestr("samples/1.json", b'{"id": 1, "messages": [' + b"[]," * (60 * MiB) + b"[]]}")
    _refused("expands to more than", "traces", "diagnose", path)


@pytest.mark.parametrize("column", ["1.0 as reward", "repeat('x', 1000000) as note"])
def test_a_table_of_metrics_that_is_a_bomb(tmp_path, column):
    """Issue 17.11: a constant column of Parquet costs nothing on disk."""
    path, rows = tmp_path / "log.parquet", 20_000_000 if "reward" in column else 3000
    duckdb.sql(
        f"copy (select range as step, {column} from range({rows})) to '{path}' (format parquet, compression zstd)"
    )
    code, out, err = _trimtab("diagnose", path)
    assert code == 2, out + err
    assert "more than" in err or "Out of Memory" in err  # DuckDB's own word, where one batch does not fit
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", [["diagnose"], ["traces", "diagnose"]])
def test_what_is_no_regular_file_is_refused(tmp_path, command):
    """Issue 17.11: a named pipe without a writer hung for ever; sockets and devices are refused as well."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    _refused("is a named pipe, not a regular file", *command, tmp_path / "pipe.jsonl")
    _refused(
        "is a named pipe, not a regular file", "diagnose", tmp_path / "x", "--rules", tmp_path / "pipe.jsonl"
    )
    _refused("is a device, not a regular file", *command, "/dev/zero")
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(
            os.path.relpath(tmp_path / "s", os.getcwd()) if len(str(tmp_path)) > 90 else str(tmp_path / "s")
        )
        _refused("is a socket, not a regular file", *command, tmp_path / "s")


def test_a_pipe_in_a_run_folder_is_refused(tmp_path):
    """Issue 17.11: the rows of a run are regular files."""
    run = _run(tmp_path / "r")
    os.mkfifo(run / "tools.r0.s0.jsonl")
    _refused("is a named pipe, not a regular file", "diagnose", run)


def test_a_pattern_that_backtracks_is_stopped(tmp_path):
    """Issue 17.11: `(a+)+$` over one result of sixty letters would take until the sun is cold."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    messages.append({"role": "tool", "tool_call_id": "c", "content": "a" * 60 + "b"})
    (tmp_path / "log.jsonl").write_text((json.dumps({"messages": messages, "reward": 1.0}) + "\n") * 3)
    _refused(
        "took longer than 2 s", "traces", "diagnose", tmp_path / "log.jsonl", "--error-pattern", "(a+)+$"
    )
