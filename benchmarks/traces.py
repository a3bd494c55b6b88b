"""How fast, and in how much memory, is a large log of agent steps diagnosed?

    python benchmarks/traces.py [--json] [--mb 1200] [--big-mb 5000] [--folder DIR]

A synthetic step JSONL (30 MB of fresh episodes, repeated under new ids) is written to the folder, which should be on a disk with
room for it, and read once to warm the page cache. `mb_per_s`: file bytes over wall seconds of the whole diagnosis, a process of
its own, start-up included, the best of `--repeat`. `peak_mb`: its largest resident set. `json_loop_ratio`: seconds of a
`json.loads` loop that makes the per-tool table only (calls, failures, p50 and p95 of latency) over seconds of the diagnosis, in
turns in the same run. `peak_mb_5gb`: the peak at `--big-mb`; null without. CPU
seconds are beside the walls: on a busy machine they are the fairer figure. With --json the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

TOOLS = ("search", "read_file", "run_tests", "write_file", "browse", "sql", "calculate", "submit")
ERRORS = ("TimeoutError: no answer in 30 s", "HTTP 503: overloaded", "ValueError: bad column")
FRESH_BYTES = 30_000_000


def episode(rng: random.Random, blob: str, number: int) -> str:
    """One episode's lines, in the shape the post-training-toolkit writes; PREFIX stands in its id."""
    rows: list[dict[str, Any]] = []
    now = 1.7e9 + number

    def text(size: int) -> str:
        at = rng.randrange(len(blob) - size)
        return blob[at : at + size]

    def add(type: str, **fields: Any) -> None:
        nonlocal now
        now += rng.random()
        empty = {
            "content": None,
            "tool": None,
            "args": None,
            "result": None,
            "error": None,
            "tokens": rng.randint(10, 300),
        }
        head = {
            "episode_id": f"PREFIX-{number:06d}",
            "step": len(rows),
            "timestamp": round(now, 3),
            "type": type,
        }
        rows.append({**head, **empty, **fields, "metadata": fields.get("metadata", {})})

    add("user_message", content=text(300))
    for _ in range(rng.randint(5, 12)):
        tool = rng.choice(TOOLS)
        add("tool_call", content=text(60), tool=tool, args={"q": text(30), "n": rng.randrange(50)})
        failed = rng.random() < (0.3 if tool == "sql" else 0.03)
        add(
            "tool_result",
            tool=tool,
            result=None if failed else text(rng.randint(50, 700)),
            error=rng.choice(ERRORS) if failed else None,
        )
    solved = rng.random() < 0.4
    add("assistant_message", content=text(300))
    add(
        "episode_end",
        success=solved,
        reward=float(solved),
        total_tokens=1_000,
        metadata={"task_id": f"t{number // 8}", "stop_reason": "stop"},
    )
    return "".join(json.dumps(row) + "\n" for row in rows)


def write_log(path: Path, mb: float) -> int:
    """Write about `mb` megabytes; the bytes written."""
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(3, 9))) for _ in range(3_000)]
    blob = " ".join(rng.choices(words, k=200_000))
    fresh: list[str] = []
    size = number = 0
    while size < min(FRESH_BYTES, mb * 1e6):
        fresh.append(episode(rng, blob, number))
        size, number = size + len(fresh[-1]), number + 1
    block, written, copy = "".join(fresh), 0, 0
    with path.open("w", encoding="ascii") as file:
        while written < mb * 1e6:
            written += file.write(block.replace("PREFIX", f"run{copy:04d}"))
            copy += 1
    return written


def diagnose(path: str) -> None:
    """The whole diagnosis, as the command line does it; seconds, peak and the table's first figures as JSON."""
    start = time.perf_counter()
    from trimtab.report.traces.trace_diagnosis import diagnose_traces, trace_diagnosis

    found = trace_diagnosis(diagnose_traces([path]))
    seconds = time.perf_counter() - start
    tools = {row["tool"]: [row["calls"], row["failed"], row["latency_p50_s"]] for row in found["tools"]}
    print(
        json.dumps(
            {
                "seconds": seconds,
                "peak_mb": _peak_mb(),
                "cpu_s": _cpu_s(),
                "engine": found["engine"],
                "episodes": found["num_episodes"],
                "tools": tools,
            }
        )
    )


def json_loop(path: str) -> None:
    """The same per-tool table by json.loads: a result answers the call just before it in its episode."""
    start = time.perf_counter()
    called: dict[str, tuple[str, float]] = {}
    calls: dict[str, int] = defaultdict(int)
    failed: dict[str, int] = defaultdict(int)
    latency: dict[str, list[float]] = defaultdict(list)
    with open(path, encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            if row["type"] == "tool_call":
                calls[row["tool"]] += 1
                called[row["episode_id"]] = (row["tool"], row["timestamp"])
            elif row["type"] == "tool_result":
                tool, when = called.pop(row["episode_id"])
                failed[tool] += row["error"] is not None
                latency[tool].append(row["timestamp"] - when)
    tools = {
        tool: [calls[tool], failed[tool], sorted(latency[tool])[len(latency[tool]) // 2]] for tool in calls
    }
    print(
        json.dumps(
            {"seconds": time.perf_counter() - start, "peak_mb": _peak_mb(), "cpu_s": _cpu_s(), "tools": tools}
        )
    )


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def child(what: str, path: Path) -> dict[str, Any]:
    """Run one side in a process of its own; `wall` includes its start."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, __file__, "--child", what, str(path)], check=True, capture_output=True, text=True
    )
    return {**json.loads(done.stdout), "wall": time.perf_counter() - start}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--mb", type=float, default=1_200)
    parser.add_argument("--big-mb", type=float, default=0)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--child", nargs=2, metavar=("WHAT", "PATH"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        {"diagnose": diagnose, "json": json_loop}[options.child[0]](options.child[1])
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "steps.jsonl"
        size = write_log(path, options.mb)
        with path.open("rb") as file:
            while file.read(2**24):
                pass
        ours, loops = [], []
        for _ in range(options.repeat):
            ours.append(child("diagnose", path))
            loops.append(child("json", path))
        same = {tool: row[:2] for tool, row in ours[0]["tools"].items()} == {
            tool: row[:2] for tool, row in loops[0]["tools"].items()
        }
        assert same, "the two sides do not agree"
        best, slow = min(ours, key=lambda one: one["wall"]), min(loops, key=lambda one: one["wall"])
        big = None
        if options.big_mb:
            write_log(path, options.big_mb)
            big = child("diagnose", path)["peak_mb"]
    figures = {
        "mb_per_s": size / 1e6 / best["wall"], "peak_mb": max(one["peak_mb"] for one in ours),
        "json_loop_ratio": slow["wall"] / best["wall"], "peak_mb_5gb": big, "mb": size / 1e6, "engine": best["engine"],
        "episodes": best["episodes"], "cpu_s": [one["cpu_s"] for one in ours],
        "json_loop_cpu_s": [one["cpu_s"] for one in loops], "wall_s": [one["wall"] for one in ours], "json_loop_s": [one["wall"] for one in loops],
    }  # fmt: skip
    for name, value in figures.items():
        print(f"{name:16} {value}")
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
