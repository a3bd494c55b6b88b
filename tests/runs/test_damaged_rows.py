"""Rows that lost keys or changed types: one exit code, no traceback, and never HEALTHY where rows were lost."""

from __future__ import annotations

import json
import random

import pytest

from tests.support import cli, write_run
from trimtab.runs.schema import KINDS

VALUES = (None, "x", [], {}, -1, 1e300, True, [[1]], {"a": {"b": 1}}, 10**20)


def places(value, path=()):
    """Paths of every key of a row, into its objects and lists."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inside in items:
        yield (*path, key)
        yield from places(inside, (*path, key))


def mutated(row, rng):
    """The row without one of its keys, or with another value there."""
    row = json.loads(json.dumps(row))
    *way, key = rng.choice([path for path in places(row) if path[0] not in ("c", "q", "s")])
    inside = row
    for step in way:
        inside = inside[step]
    if rng.random() < 0.5:
        del inside[key]
    else:
        inside[key] = rng.choice(VALUES)
    return row


def damage(folder, rng, stripped):
    """Mutate one row of a folder, in its last ten of the kind; `stripped`: as 0.1 wrote rows, without checksums."""
    kind = rng.choice([k for k in KINDS if (folder / f"{k}.r0.s0.jsonl").stat().st_size])
    for path in folder.glob("*.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        if stripped:
            rows = [{k: v for k, v in row.items() if k not in ("c", "q", "s", "n", "clock")} for row in rows]
        if path.name.startswith(f"{kind}."):
            i = rng.randrange(max(0, len(rows) - 10), len(rows))
            rows[i] = mutated(rows[i], rng)
        if stripped or path.name.startswith(f"{kind}."):
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("stripped", [False, True], ids=["checksums", "0.1"])
def test_a_mutated_row_ends_in_an_exit_code_and_never_in_health(tmp_path, stripped):
    """Issue 17.13: KeyErrors in views of damaged rows."""
    rng = random.Random(0)
    for i in range(12):
        folder = write_run(tmp_path / f"run{i}", steps=30)
        damage(folder, rng, stripped)
        for command in (("diagnose", folder), ("report", folder, "-o", tmp_path / "page.html")):
            done = cli(*command)
            assert done.returncode in (0, 1, 2)
            assert "Traceback" not in done.stderr, f"run{i}: {done.stderr}"
            assert "a bug of ours" not in done.stdout + done.stderr, f"run{i}: {done.stderr}"
        if not stripped:
            assert not cli("diagnose", folder).stdout.startswith("HEALTHY"), f"run{i}"
