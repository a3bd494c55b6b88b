"""Fuzz the readers of agent logs, guided by coverage: `python reproduce/fuzz_traces.py [--seconds 600]`. Not part of CI.

Every input is a file of three lines: a valid one, the fuzzer's bytes, a valid one. It is read, followed, judged and sampled. A crash is an exception
that is not ours, a valid line lost, or an input that takes longer than `--hang` seconds; each is written to `--out` and the exit code is 1.

With atheris installed (Python 3.11 or 3.12, `pip install atheris`) libFuzzer mutates; without it a small loop of our own does, which keeps
an input when it reaches a line of `trimtab.traces` that none before it has.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.traces.samples import RECORDS
from trimtab.errors import TraceError
from trimtab.measure.state.requirements import Requirements
from trimtab.report.traces.trace_diagnosis import diagnose_table, trace_diagnosis
from trimtab.report.traces.trace_lines import trace_diagnosis_lines
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.export.prm_steps import step_rows
from trimtab.traces.export.samples import sample_of
from trimtab.traces.follow import FOLLOWED, Follower
from trimtab.traces.read import iter_episodes
from trimtab.traces.registry import FORMATS
from trimtab.traces.table.build import tabulate

NAMES = [name for name in FORMATS if name in RECORDS]
MARKS = {"trimtab": '"?"', "messages": '"Where is x?"', "verl": '"user\\nWhere?"'}
"""Formats of which a valid line is known again in the episodes, and the text of it that is marked."""


def seeds() -> list[bytes]:
    """The first byte is the format; the rest are the lines between the two valid ones."""
    return [
        bytes([place]) + b"\n".join(json.dumps(record).encode() for record in RECORDS[name])
        for place, name in enumerate(NAMES)
    ]


def one_input(data: bytes, path: Path) -> None:
    """Everything the commands do with one input; raises what a crash raises."""
    name = NAMES[data[0] % len(NAMES)] if data else NAMES[0]
    marks: list[str] = []
    between = data[1:]
    if name in MARKS:
        first, last = (_marked(name, which, marks) for which in ("one", "two"))
        between = first + b"\n" + between + b"\n" + last + b"\n"
    path.write_bytes(between)
    report = ReadReport()
    try:
        found = list(iter_episodes([path], report, name))
        if name in FOLLOWED:
            Follower(path, ReadReport(), name).poll()
    except TraceError:  # the bytes say UTF-16, a later version, or that they are compressed
        return
    texts = {turn.content for episode in found for turn in episode.turns}
    lost = [mark for mark in marks if mark not in texts]
    if lost and not between.startswith(b"\x1f\x8b"):
        raise AssertionError(f"{name}: valid line lost: {lost}")
    for episode in found:
        sample_of(episode, 1.0)
    step_rows(found, Counter())
    if found:
        judged = diagnose_table(("f",), tabulate(found), report, Requirements(), time.perf_counter())
        trace_diagnosis_lines(trace_diagnosis(judged))


def _marked(name: str, which: str, marks: list[str]) -> bytes:
    marks.append(f"mark-{which}")
    return json.dumps(RECORDS[name][0]).replace(MARKS[name], json.dumps(marks[-1])).encode()


class Coverage:
    """Lines of trimtab.traces that a call reached, by `sys.settrace`, limited to the package's own frames."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, int]] = set()
        self.new = 0

    def run(self, call: Callable[[], None]) -> int:
        """How many lines this call was the first to reach."""
        self.new = 0
        sys.settrace(self._enter)
        try:
            call()
        finally:
            sys.settrace(None)
        return self.new

    def _enter(self, frame: FrameType, event: str, value: Any) -> Any:
        del event, value
        return self._line if "/trimtab/traces/" in frame.f_code.co_filename else None

    def _line(self, frame: FrameType, event: str, value: Any) -> Any:
        del value
        place = (frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and place not in self.seen:
            self.seen.add(place)
            self.new += 1
        return self._line


TOKENS = [
    *(b'{ } [ ] , : " \\ \n null true NaN 1e999 -1 "" [] {} \\ud800 \xff \x00 \xef\xbb\xbf'.split(b" ")),
    *(json.dumps(key).encode() for name in NAMES for record in RECORDS[name] if isinstance(record, dict) for key in record),
]  # fmt: skip


def mutate(data: bytes, pool: list[bytes], rng: random.Random) -> bytes:
    """One to eight edits: bytes set, cut, doubled, tokens of the formats put in, pieces of another input."""
    for _ in range(2 ** rng.randint(0, 3)):
        at, size = rng.randint(0, len(data)), 2 ** rng.randint(0, 6)
        other = rng.choice(pool)
        start = rng.randint(0, len(other))
        piece = rng.choice(
            [
                rng.randbytes(rng.randint(1, 4)),
                rng.choice(TOKENS),
                other[start : start + size],
                data[at : at + size],
            ]
        )
        keep = rng.choice([0, len(piece), size])
        data = data[:at] + piece + data[at + keep :]
    return data[:200_000]


def loop(seconds: float, hang: float, out: Path, seed: int, least: int = 0) -> dict[str, Any]:
    """Our own guided loop, of `seconds`, and of `least` inputs however long they take."""
    rng, pool, coverage = random.Random(seed), seeds(), Coverage()
    runs, crashes, slowest, start = 0, {}, 0.0, time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        for data in pool:
            coverage.run(lambda data=data: one_input(data, path))
        first = len(coverage.seen)
        while time.perf_counter() - start < seconds or runs < least:
            data, began = mutate(rng.choice(pool), pool, rng), time.perf_counter()
            try:
                new = coverage.run(lambda data=data: one_input(data, path))
            except Exception as error:
                new = 0
                crashes.setdefault(_where(error), _keep(out, data))
            took = time.perf_counter() - began
            runs, slowest = runs + 1, max(slowest, took)
            if took > hang:
                crashes.setdefault(f"took {took:.1f} s", _keep(out, data))
            if new:
                pool.append(data)
    return {
        "fuzzer": "own loop", "seconds": round(time.perf_counter() - start, 1), "inputs": runs, "kept": len(pool), "lines_of_seeds": first,
        "lines": len(coverage.seen), "slowest_s": round(slowest, 2), "crashes": crashes,
    }  # fmt: skip


def _where(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code if trace is not None else None
    at = f"{Path(code.co_filename).name}:{trace.tb_lineno}" if code and trace is not None else "?"
    return f"{type(error).__name__} at {at}: {str(error)[:120]}"


def _keep(out: Path, data: bytes) -> str:
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"crash-{len(list(out.iterdir()))}"
    path.write_bytes(data)
    return str(path)


def _functions() -> Iterator[FunctionType]:
    """Functions and methods of `trimtab.traces`: all that is loaded would take minutes to instrument."""
    for name, module in list(sys.modules.items()):
        if not name.startswith("trimtab.traces"):
            continue
        for holder in (module, *(v for v in vars(module).values() if isinstance(v, type))):
            for value in list(vars(holder).values()):
                if isinstance(value, FunctionType) and value.__module__ == name:
                    yield value


def with_atheris(atheris: Any, seconds: float, hang: float, out: Path) -> None:
    """libFuzzer takes over, prints its own count, and ends the process: 0 after `seconds`, otherwise at the first crash."""
    for function in _functions():
        atheris.instrument_func(function)
    corpus = out / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for place, data in enumerate(seeds()):
        (corpus / f"seed-{place}").write_bytes(data)
    words = out / "words"
    quoted = ["".join(rf"\x{byte:02x}" for byte in token) for token in TOKENS if token]
    words.write_text("".join(f'"{token}"\n' for token in quoted))
    path = Path(tempfile.mkdtemp()) / "log.jsonl"
    options = [
        f"-max_total_time={seconds:.0f}", f"-timeout={hang:.0f}", "-max_len=20000", f"-dict={words}", f"-artifact_prefix={out}/",
        "-rss_limit_mb=4096", "-print_final_stats=1", str(corpus),
    ]  # fmt: skip
    atheris.Setup([sys.argv[0], *options], lambda data: one_input(data, path))
    atheris.Fuzz()


def main() -> int:
    """Fuzz and print what was found; exit status 1 when an input crashed a reader."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--hang", type=float, default=20, help="seconds from which one input is a hang")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "trimtab-fuzz")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--quick", action="store_true", help="our own loop for two seconds: it checks that everything runs"
    )
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object of figures")
    parser.add_argument("--own", action="store_true", help="our own loop, also where atheris is installed")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.own = min(options.seconds, 2.0), True
    if not options.own:
        try:
            atheris = importlib.import_module("atheris")
        except ImportError:
            print("atheris is not installed; our own loop", file=sys.stderr)
        else:
            with_atheris(atheris, options.seconds, options.hang, options.out)
            return 0
    result = loop(options.seconds, options.hang, options.out, options.seed)
    print(json.dumps(result, indent=1))
    if options.json:
        figures = {name: value for name, value in result.items() if isinstance(value, (int, float))}
        print(json.dumps({"figures": {**figures, "num_crashes": len(result["crashes"])}}))
    return 1 if result["crashes"] else 0


if __name__ == "__main__":
    sys.exit(main())
