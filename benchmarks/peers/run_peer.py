"""What does a peer find in each of many logs, and after which step would it have said so? Run by the peers' Python:

    $TRIMTAB_PEERS_PYTHON benchmarks/peers/run_peer.py rldoctor < logs.jsonl > findings.jsonl

In, a line a log: `{"id", "steps": [int], "series": {our name: [float | null]}, "prefixes": [int]?, "config": {}?}`.
Out, a line a log: `{"id", "findings": [{"rule", "severity", "step", "claimed", "families"}], "whole": [[rule,
severity]], "seconds", "evaluated", "untaken"}`, or `{"id", "error"}` where the peer raised.

Each peer is used through its own interface with its own defaults: rldoctor's `diagnose(run_from_records(rows))`, rlprobe's
`diagnose(folder)` of a recording by its own writer, rlwatch's `attach(framework="manual")` and `log_step`.

* Severity. rldoctor INFO, WARNING, CRITICAL; rlprobe info, warn, critical; rlwatch warning, critical: to info, warning, critical.
  rldoctor's OK and SKIPPED are no findings.
* `step` is when the peer would have spoken. rlwatch speaks in the step. The two others judge a whole log: with `prefixes` they
  judge its first n steps for each n, as their live modes do, and a finding carries the last step of the first prefix that has
  it; a finding is new if its rule is, or is more severe than before, which is rldoctor's own live rule. Prefixes shorter than
  the peer's own minimum (60 and 30 steps) are skipped. Without prefixes `step` is null: rlprobe's
  `first_step` looks back from the end of the log, so it is given apart as `claimed`. `whole` is the verdict on the whole log.
  rldoctor is told the log's last step as `max_steps`, without which it calls a young run a plateau.
* `evaluated` is how many steps were read. rldoctor is quadratic (10,000 steps: 8 s, 1.7 GB), so it is given the first 1000.
* `seconds` is the judgement of the whole log once, or all of `log_step`; prefixes are not in it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks.peers.families import families
from benchmarks.peers.translate import (
    PEERS,
    rldoctor_rows,
    rlprobe_steps,
    rlwatch_calls,
    untaken,
)

LIMIT = {"rldoctor": 1000}
SHORTEST = {"rldoctor": 60, "rlprobe": 30}
RANK = {"info": 0, "warning": 1, "critical": 2}
Found = list[tuple[str, str, "int | None"]]  # rule, severity, the step the peer claims


def rldoctor_judge(rows: list[dict[str, Any]], config: dict[str, Any] | None = None) -> Found:
    """rldoctor's findings on rows in its own or TRL's names."""
    from rl_doctor import diagnose, run_from_records

    found = diagnose(run_from_records(rows, config=config)).findings
    return [(f.detector, f.severity.name.lower(), None) for f in found if f.severity.name.lower() in RANK]


def rlprobe_judge(folder: Path) -> Found:
    """rlprobe's findings on a recording."""
    from rlprobe.doctor import diagnose

    return [(f.signature_id, f.severity.replace("warn", "warning"), f.first_step) for f in diagnose(folder)]


def rlprobe_record(rows: list[dict[str, Any]], folder: Path) -> None:
    """A recording by rlprobe's own writer."""
    from rlprobe.schemas import RunManifest, StepRecord
    from rlprobe.storage import RunWriter

    manifest = RunManifest(run_id=folder.name, created_at="1970-01-01T00:00:00+00:00", algorithm="grpo")
    with RunWriter(folder, manifest) as writer:
        for row in rows:
            writer.add_step(StepRecord(**row))


def judge_prefix(peer: str, log: dict[str, Any], n: int) -> tuple[Found, float]:
    """What an offline peer finds in the first n steps, and the seconds of the judgement alone."""
    steps, series = log["steps"][:n], {name: values[:n] for name, values in log["series"].items()}
    if peer == "rldoctor":
        rows = rldoctor_rows(steps, series)
        config = {"max_steps": log["steps"][-1], **(log.get("config") or {})}
        begin = time.perf_counter()
        return rldoctor_judge(rows, config), time.perf_counter() - begin
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        rlprobe_record(rlprobe_steps(steps, series), folder)
        begin = time.perf_counter()
        return rlprobe_judge(folder), time.perf_counter() - begin


def offline(peer: str, log: dict[str, Any]) -> dict[str, Any]:
    """The answer of a peer that judges whole logs."""
    length = min(len(log["steps"]), LIMIT.get(peer, len(log["steps"])))
    whole, seconds = judge_prefix(peer, log, length)
    found: list[dict[str, Any]] = []
    said: dict[str, int] = {}
    prefixes = sorted({min(n, length) for n in log["prefixes"]} | {length}) if log.get("prefixes") else []
    for n in (n for n in prefixes if n == length or n >= SHORTEST[peer]):
        for rule, severity, claimed in whole if n == length else judge_prefix(peer, log, n)[0]:
            if RANK[severity] > said.get(rule, -1):
                said[rule] = RANK[severity]
                found.append(finding(peer, rule, severity, log["steps"][n - 1], claimed))
    if not prefixes:
        found = [finding(peer, rule, severity, None, claimed) for rule, severity, claimed in whole]
    verdict = [[rule, severity] for rule, severity, _ in whole]
    return {"findings": found, "whole": verdict, "seconds": seconds, "evaluated": length}


def online(log: dict[str, Any]) -> dict[str, Any]:
    """The answer of rlwatch, alerts as it sends them: its cooldown of 100 steps and its 50 alerts a run stay as they are."""
    import rlwatch

    calls = rlwatch_calls(log["steps"], log["series"])
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stderr(io.StringIO()):
        monitor = rlwatch.attach(framework="manual", run_id=str(log["id"]), storage={"log_dir": name})
        begin = time.perf_counter()
        alerts = [alert for call in calls for alert in monitor.log_step(**call)]
        seconds = time.perf_counter() - begin
        monitor.stop()
    found = [finding("rlwatch", a.detector, a.severity, a.step, a.step) for a in alerts]
    return {"findings": found, "whole": [], "seconds": seconds, "evaluated": len(calls)}


def finding(peer: str, rule: str, severity: str, step: int | None, claimed: int | None) -> dict[str, Any]:
    """One finding in the shape that every system of the bench answers in."""
    spoken_for = list(families(peer, rule))
    return {"rule": rule, "severity": severity, "step": step, "claimed": claimed, "families": spoken_for}


def answer(peer: str, log: dict[str, Any]) -> dict[str, Any]:
    """The line for one log; what the peer raised is the answer where it raised."""
    try:
        found = online(log) if peer == "rlwatch" else offline(peer, log)
    except Exception as error:
        return {"id": log["id"], "error": f"{type(error).__name__}: {error}"}
    return {"id": log["id"], **found, "untaken": untaken(peer, log["series"])}


def main(write: Callable[[str], Any] = sys.stdout.write) -> None:
    if len(sys.argv) != 2 or sys.argv[1] not in PEERS:
        raise SystemExit(f"usage: run_peer.py {{{','.join(PEERS)}}} < logs.jsonl > findings.jsonl")
    for name in [name for name in os.environ if name.startswith("RLWATCH_")]:
        del os.environ[name]  # nobody's webhooks or thresholds
    with tempfile.TemporaryDirectory() as empty:
        os.chdir(empty)  # nobody's rlwatch.yaml
        for line in sys.stdin:
            if line.strip():
                write(json.dumps(answer(sys.argv[1], json.loads(line))) + "\n")
        os.chdir("/")


if __name__ == "__main__":
    main()
