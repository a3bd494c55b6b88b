"""How fast, and in how much memory, are large agent logs diagnosed?

    python benchmarks/traces.py [--json] [--quick] [--run] [--mb 200] [--folder DIR]

Three synthetic logs are written to a temporary folder, read once to warm the page cache, diagnosed, and deleted: step JSONL, plain; nasty step
JSONL (many failures, long error texts with numbers of their own); chats with text of three scripts.

`json_loop_ratio`, `json_loop_ratio_nasty`: wall seconds of the diagnosis, a process of its own and its start
included, over those of a `json.loads` loop over the lines of the same file in one process: lower is better,
1.0 is wanted. `cpu_ratio`, `cpu_ratio_nasty`: CPU seconds of all processes of the diagnosis, halved as for two
cores, over those of the loop: what the ratio is where no other work shares the cores. `chat_mb_per_s`: 30 is
wanted; `chat_mb_per_cpu_s` with halved CPU seconds. `peak_mb`, `peak_mb_nasty`: largest resident set of the
process, and of its largest worker times the workers. `peak_growth_frac`: how much `peak_mb` grows when the log
is five times as long.

--run measures all of it (logs of `--mb`, then of 0.2 and 1 GB; some ten minutes) and writes the raw results to
results/traces.json, from which the figures are printed otherwise. With --json the last line is
{"figures": {...}}. `--quick`: measures logs of 3 MB, for CI: the figures are then mostly of starting.
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
from pathlib import Path
from typing import Any

TOOLS = ("search", "read_file", "run_tests", "write_file", "browse", "sql", "calculate", "submit")
ERRORS = ("TimeoutError: no answer in 30 s", "HTTP 503: overloaded", "ValueError: bad column")
FRESH_BYTES = 30_000_000
RESULTS = Path(__file__).parent / "results" / "traces.json"
WORDS = (
    "the answer",
    "прогноз погоды на завтра",
    "今日の天気はどうですか",
    "naïve façade",
    "and then we search again",
)


def episode(rng: random.Random, blob: str, number: int, nasty: bool) -> str:
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
        failed = rng.random() < (0.5 if nasty else 0.3 if tool == "sql" else 0.03)
        add(
            "tool_result",
            tool=tool,
            result=None if failed else text(rng.randint(50, 700)),
            error=(_long_error(rng, text) if nasty else rng.choice(ERRORS)) if failed else None,
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


def _long_error(rng: random.Random, text: Any) -> str:
    """A traceback of about 1 kB, with numbers that no other has."""
    frames = [f'  File "/srv/{text(9)}.py", line {rng.randrange(900)}\n    {text(60)}' for _ in range(8)]
    return "Traceback (most recent call last):\n" + "\n".join(
        [*frames, f"{rng.choice(ERRORS)} ({rng.random()})"]
    )


def chat(rng: random.Random, number: int) -> str:
    """One chat of 8 turns with two calls, in three scripts."""
    messages: list[dict[str, Any]] = []
    for turn in range(8):
        words = " ".join(rng.choices(WORDS, k=30))
        messages.append({"role": "assistant" if turn % 2 else "user", "content": words})
        if turn in (3, 5):
            call = {
                "id": f"c{turn}",
                "type": "function",
                "function": {"name": rng.choice(TOOLS), "arguments": '{"q": 1}'},
            }
            messages[-1]["tool_calls"] = [call]
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": words})
    row = {
        "id": f"PREFIX-{number}",
        "messages": messages,
        "reward": float(rng.random() < 0.4),
        "task_id": f"t{number // 8}",
    }
    return json.dumps(row, ensure_ascii=False) + "\n"


def write_log(path: Path, mb: float, kind: str = "plain") -> int:
    """Write about `mb` megabytes of a kind (plain, nasty, chat); the bytes written."""
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(3, 9))) for _ in range(3_000)]
    blob = " ".join(rng.choices(words, k=200_000))
    fresh: list[bytes] = []
    size = 0
    while size < min(FRESH_BYTES, mb * 1e6):
        number = len(fresh)
        text = chat(rng, number) if kind == "chat" else episode(rng, blob, number, kind == "nasty")
        fresh.append(text.encode())
        size += len(fresh[-1])
    block, written, copy = b"".join(fresh), 0, 0
    with path.open("wb") as file:
        while written < mb * 1e6:
            written += file.write(block.replace(b"PREFIX", b"run%04d" % copy))
            copy += 1
    return written


def diagnose(path: str) -> None:
    """Print seconds, peak and number of episodes of the whole diagnosis, as the command line does it."""
    from trimtab.report.traces.trace_diagnosis import diagnose_traces, trace_diagnosis
    from trimtab.traces.workers import num_workers

    found = trace_diagnosis(diagnose_traces([path]))
    workers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024 * num_workers()
    print(json.dumps({"peak_mb": _peak_mb() + workers, "episodes": found["num_episodes"]}))


def json_loop(path: str) -> None:
    """Decode every line, and do nothing with it."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            json.loads(line)
    print("{}")


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def child(what: str, path: Path) -> dict[str, Any]:
    """Run one side in a process of its own; `wall` includes its start."""
    start, before = time.perf_counter(), _cpu()
    done = subprocess.run(
        [sys.executable, __file__, "--child", what, str(path)], check=True, capture_output=True, text=True
    )
    return {**json.loads(done.stdout), "wall": time.perf_counter() - start, "cpu": _cpu() - before}


def _cpu() -> float:
    """Return CPU seconds of the processes that this one has waited for, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(folder: Path, kind: str, mb: float, repeat: int) -> dict[str, Any]:
    """Return bytes of a log, and seconds and peaks of both sides, in turns; without repeats of ours alone."""
    path = folder / "log.jsonl"
    size = write_log(path, mb, kind)
    rows: dict[str, Any] = {"bytes": size, "diagnose": [], "json": []}
    for _ in range(max(1, repeat)):
        rows["diagnose"].append(child("diagnose", path))
        if repeat:
            rows["json"].append(child("json", path))
    path.unlink()
    return rows


def figures_of(raw: dict[str, Any]) -> dict[str, float | None]:
    """Return the figures of raw results: of repeats the best time and the largest peak."""

    def best(kind: str, side: str, what: str) -> float:
        return float(min(row[what] for row in raw[kind][side]))

    def peak(kind: str) -> float:
        return float(max(row["peak_mb"] for row in raw[kind]["diagnose"]))

    mb = raw["chat"]["bytes"] / 1e6
    figures: dict[str, float | None] = {}
    for kind, end in (("plain", ""), ("nasty", "_nasty")):
        cpu, loop = (best(kind, side, "cpu") for side in ("diagnose", "json"))
        figures[f"json_loop_ratio{end}"] = best(kind, "diagnose", "wall") / best(kind, "json", "wall")
        figures[f"cpu_ratio{end}"] = cpu / 2 / loop
    figures["chat_mb_per_s"] = mb / best("chat", "diagnose", "wall")
    figures["chat_mb_per_cpu_s"] = mb / (best("chat", "diagnose", "cpu") / 2)
    figures["peak_mb"], figures["peak_mb_nasty"] = peak("plain"), peak("nasty")
    figures["peak_growth_frac"] = peak("long_5") / peak("long_1") - 1 if "long_5" in raw else None
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for flag in ("--json", "--quick", "--run"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--mb", type=float, default=200)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--child", nargs=2, metavar=("WHAT", "PATH"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        {"diagnose": diagnose, "json": json_loop}[options.child[0]](options.child[1])
        return
    raw = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if options.quick or options.run or not raw:
        mb, repeat = (3.0, 1) if options.quick else (options.mb, options.repeat)
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            folder = Path(name)
            raw = {kind: measure(folder, kind, mb, repeat) for kind in ("plain", "nasty", "chat")}
            if options.run:
                raw |= {f"long_{n}": measure(folder, "plain", n * 200, 0) for n in (1, 5)}
                RESULTS.parent.mkdir(exist_ok=True)
                RESULTS.write_text(json.dumps(raw, indent=1) + "\n")
    figures = figures_of(raw)
    for figure, value in figures.items():
        print(f"{figure:22} {value}")
    if options.json:
        print(json.dumps({"figures": figures}))


if __name__ == "__main__":
    main()
