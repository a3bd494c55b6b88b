"""How good is detection? False alarms, what is found, how late, and who speaks first; trimtab and its peers on the same banks.

    python benchmarks/detectors.py [--half test] [--healthy 400] [--seeds 4] [--first 1000] [--no-peers] [--json]

Banks: generated logs (`benchmarks/banks`, 600 steps each; the test half shares no family with the half rules were tuned on), the
pilot's recorded runs (`reproduce/bank`), the peers' own scenarios. The peers (rldoctor, rlprobe, rlwatch) run through their own
interfaces in their own environment (`bash benchmarks/peers/setup.sh`); without it the table is ours alone and says so.
Also: the cost of a flush of 200 readings, of a whole flush of 64 x 64 tokens, and of diagnosing a log of 10,000 steps as a whole process.
From committed results: causes and slices of faults in token batches (`token_faults.py`), real logs of other projects (`real_logs.py`).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from benchmarks.banks.generated import Log, healthy, pathological
from benchmarks.banks.recorded import recorded
from benchmarks.peers.client import ask, peers_python, scenarios
from benchmarks.peers.intervals import poisson_upper, share_interval
from benchmarks.peers.table import format_table, summarise, without
from benchmarks.peers.translate import PEERS

from benchmarks import flush, real_logs, token_faults
from trimtab.detect.pipeline import Pipeline
from trimtab.detect.rules.all_rules import RULES, STREAM_RULES
from trimtab.detect.verdict import agreeing
from trimtab.types import Alarm, Reading, Window

PER = 10_000
FAMILY = {rule.name: rule.family for rule in RULES}
FAMILIES = {rule.name: (rule.family, *rule.also) for rule in RULES}
"""As with the peers' rules (`peers/families.py`), a rule may speak for more than one."""
KIND = {rule.name: rule.kind for rule in RULES}


def alarms_of(log: Log) -> list[Alarm]:
    """What trimtab says of a generated log."""
    pipeline = Pipeline()
    pipeline.on_log(log.series)
    return pipeline.alarms


def answer(name: str, alarms: Iterable[Alarm], seconds: float) -> dict[str, Any]:
    """The same shape as a peer's answer."""
    findings = [
        {"rule": a.rule, "severity": a.severity, "step": a.step, "families": FAMILIES.get(a.rule, ())} for a in alarms
    ]  # fmt: skip
    return {"id": name, "findings": findings, "seconds": seconds}


def row_of(log: Log) -> dict[str, Any]:
    """A generated log as the peers take it: `aggregate/` series alone, None where a series was not logged at a step."""
    series: dict[str, list[float | None]] = {}
    for (key, _), (steps, values) in log.series.items():
        if key.startswith("aggregate/"):
            table = dict(zip(steps, values, strict=True))
            series[key.removeprefix("aggregate/")] = [table.get(step) for step in range(log.num_steps)]
    return {
        "id": log.id, "healthy": log.onset < 0, "onset": log.onset if log.onset >= 0 else None, "strength": log.strength,
        "expected_family": log.family, "steps": list(range(log.num_steps)), "series": series,
        "prefixes": list(range(50, log.num_steps + 1, 50)),
    }  # fmt: skip


def judge(logs: Iterable[Log]) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, list[Alarm]]]:
    """Truths, trimtab's answers, and its alarms by log. Only one log's series is held at a time."""
    truths, answers, alarms = [], [], {}
    for log in logs:
        start = time.perf_counter()
        found = alarms_of(log)
        answers.append(answer(log.id, found, time.perf_counter() - start))
        alarms[log.id] = found
        truths.append({key: value for key, value in row_of(log).items() if key not in ("series", "prefixes")})
    return truths, answers, alarms


def by_rule(truths: list[dict[str, Any]], alarms: dict[str, list[Alarm]]) -> str:
    """Per rule: false alarms on healthy logs, and in how many pathological logs of its family it spoke, with its delay."""
    steps = sum(len(t["steps"]) for t in truths if t["healthy"])
    false: Counter[str] = Counter()
    hits: dict[str, list[int]] = defaultdict(list)
    of_family = Counter(t["expected_family"] for t in truths if not t["healthy"] and t["strength"] != "low")
    for truth in truths:
        spoken: set[str] = set()
        for alarm in alarms[truth["id"]]:
            if alarm.severity == "info":
                continue
            if truth["healthy"]:
                false[alarm.rule] += 1
            elif alarm.step >= truth["onset"] and truth["strength"] != "low" and alarm.rule not in spoken:
                spoken.add(alarm.rule)
                if FAMILY[alarm.rule] == truth["expected_family"]:
                    hits[alarm.rule].append(alarm.step - truth["onset"])
    lines = [f"{'rule':<30}{'family':<14}{'false/10k':>10}{'<=95%':>8}{'spoke in':>12}{'delay':>8}"]
    for rule in RULES:
        n, found = false[rule.name], hits[rule.name]
        delay = f"{median(found):.0f}" if found else "-"
        lines.append(
            f"{rule.name:<30}{rule.family:<14}{PER * n / steps:>10.2f}{PER * poisson_upper(n) / steps:>8.2f}"
            f"{f'{len(found)}/{of_family[rule.family]}':>12}{delay:>8}"
        )
    return "\n".join(lines)


def post_tool_lead(truths: list[dict[str, Any]], alarms: dict[str, list[Alarm]]) -> dict[str, float]:
    """In logs where a tail alarm could lead: share in which it spoke before any aggregate rule, and by how much of the way."""
    first, leads = [], []
    for truth in truths:
        if truth["expected_family"] != "post_tool" or truth["strength"] == "low":
            continue
        late = [a for a in alarms[truth["id"]] if a.step >= truth["onset"] and a.severity != "info"]
        tail = min((a.step for a in late if FAMILY.get(a.rule) == "post_tool"), default=math.inf)
        average = min((a.step for a in late if KIND.get(a.rule) == "aggregate"), default=math.inf)
        first.append(tail < average)
        if math.isfinite(tail):
            end = min(average, truth["steps"][-1])
            leads.append((end - tail) / (truth["steps"][-1] - truth["onset"]))
    return {
        "post_tool_first_frac": round(float(np.mean(first)), 3) if first else math.nan,
        "median_lead_frac": round(float(np.median(leads)), 3) if leads else math.nan,
    }


def recorded_table(half: str) -> tuple[str, int, int, int, int]:
    """The pilot's runs: text, healthy steps, alarms and high alarms on healthy ones, collapses found."""
    runs = recorded(half)
    calm = [r for r in runs if r.collapsed is None and not r.growing]
    growing = [r for r in runs if r.collapsed is None and r.growing]
    sick = [r for r in runs if r.collapsed is not None]
    serious = [[a for a in r.alarms if a.severity != "info"] for r in calm]
    high = sum(a.severity == "critical" for found in serious for a in found)
    steps = sum(r.num_steps for r in calm)
    lines = [f"recorded runs, {half} half: {len(calm)} healthy ({steps} steps), {len(sick)} collapses"]
    lines += [
        f"  {r.id:<30}{r.verdict:<16}{', '.join(f'{a.rule}@{a.step}' for a in found)}"
        for r, found in zip(calm, serious, strict=True) if found
    ]  # fmt: skip
    grew = [
        [a for a in r.alarms if FAMILY.get(a.rule) == "post_tool" and a.severity != "info"] for r in growing
    ]
    lines.append(
        f"  open outputs, no collapse: {sum(map(bool, grew))}/{len(growing)} runs with a post-tool alarm, median step "
        f"{median([found[0].step for found in grew if found] or [math.nan]):.0f}"
    )
    early = 0
    for run in sick:
        before = [a for a in run.alarms if a.severity != "info" and a.step <= (run.collapsed or 0)]
        early += bool(before)
        told = ", ".join(f"{a.rule}@{a.step}" for a in before[:4]) or "nothing before"
        lines.append(f"  {run.id:<30}reward halved by {run.collapsed}: {told}")
    lines.append(
        f"  alarms on healthy runs: {sum(map(len, serious))} ({high} critical); collapses told before: {early}/{len(sick)}"
    )
    return "\n".join(lines), steps, sum(map(len, serious)), high, early


def flush_ms() -> float:
    """Milliseconds of the detectors for one flush of 20 slices and 200 readings, median of 100 after 300 flushes."""
    rng, pipeline = np.random.default_rng(0), Pipeline()
    keys = sorted({(r.key, r.slice.replace("*", "t0")) for r in RULES if not r.key.startswith("joint/")})
    names = [f"slice/{i}" for i in range(20)]
    extra = [("drift/p90", name) for name in names] + [("total/p99", name) for name in names]
    places = (keys + extra + [("mismatch/p50", f"{n}/{i}") for n in names for i in range(10)])[:200]
    spent = []
    for step in range(400):
        values = np.exp(0.1 * rng.normal(size=len(places))).tolist()
        readings = [
            Reading(k, step, Window(step, step), s, v, 2000, 30)
            for (k, s), v in zip(places, values, strict=True)
        ]
        start = time.process_time()
        pipeline.on_readings(readings)
        spent.append(time.process_time() - start)
    return 1000 * float(np.median(spent[300:]))


def flush_cpu_ms(repeats: int) -> float:
    """Processor milliseconds of observe and flush of a step of 64 x 64 tokens with 3 tools and 2 sources, all slices; median."""
    with tempfile.TemporaryDirectory() as folder:
        return 1000 * float(
            np.median(flush.flush_times(Path(folder) / "run", flush.micro_batches((3, 2)), repeats))
        )


def committed() -> dict[str, float]:
    """Figures of results that other scripts of this folder compute."""
    faults, real = token_faults.figures_from_results(), real_logs.figures_from_results()
    names = (
        ("cause_first_frac", "slice_named_frac"),
        ("real_false_critical", "real_dead_delay_max", "short_runs_judged_frac"),
    )
    return {name: of[name] for of, chosen in zip((faults, real), names, strict=True) for name in chosen}


def diagnose_10k() -> tuple[float, float]:
    """Wall seconds and peak MB of `trimtab diagnose` on a healthy log of 10,000 steps and 25 metrics, as a whole process; best of five."""
    log = next(healthy("test", 1, steps=10_000))
    names = [key.removeprefix("aggregate/") for key, _ in log.series if key.startswith("aggregate/")]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        tables = {n: dict(zip(*log.series[f"aggregate/{n}", "all"], strict=True)) for n in names[:25]}
        with path.open("w", encoding="utf-8") as out:
            for step in range(log.num_steps):
                out.write(
                    json.dumps({"step": step, **{n: t[step] for n, t in tables.items() if step in t}}) + "\n"
                )
        code = (
            "import resource,subprocess,sys,time;t=time.perf_counter();"
            "p=subprocess.run(sys.argv[1:],stdout=subprocess.PIPE);assert b'verdict' in p.stdout;"
            "print(time.perf_counter()-t,resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss/1024)"
        )
        command = [
            sys.executable,
            "-c",
            code,
            sys.executable,
            "-m",
            "trimtab.cli",
            "diagnose",
            str(path),
            "--json",
        ]
        runs = [
            tuple(
                map(float, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
            )
            for _ in range(5)
        ]
    return min(s for s, _ in runs), max(mb for _, mb in runs)


def place(name: str) -> tuple[str, str]:
    """Key and slice of a series in the peers' form.

    >>> place("kl"), place("reward_part:format")
    (('aggregate/kl', 'all'), ('reward_part/mean', 'reward/format'))
    """
    _, colon, part = name.partition(":")
    return ("reward_part/mean", f"reward/{part}") if colon else (f"aggregate/{name}", "all")


def ours_on(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """trimtab's answers to logs in the peers' form."""
    answers = []
    for row in rows:
        series = {
            place(name): ([s for s, v in zip(row["steps"], values, strict=True) if v is not None],
                                           [v for v in values if v is not None])
            for name, values in row["series"].items()
        }  # fmt: skip
        start, pipeline = time.perf_counter(), Pipeline()
        for step, bad in nonfinite(series):
            pipeline.on_step(step, bad, ())
        pipeline.on_log(series)
        answers.append(answer(row["id"], pipeline.alarms, time.perf_counter() - start))
    return answers


def scenario_line(row: dict[str, Any], found: dict[str, Any]) -> str:
    """What trimtab says of one scenario: `alarm` or `info`, the highest level at which the right family is named."""
    alarms = [f for f in found["findings"] if f["severity"] != "info"]
    level = "false" if row["healthy"] and alarms else "calm" if row["healthy"] else "-"
    for name, of in (("info", found["findings"]), ("alarm", alarms)):
        if any(row["expected_family"] in f["families"] for f in of):
            level = name
    rules = ", ".join(dict.fromkeys(f["rule"] for f in alarms)) or "no alarm"
    return f"  {row['id']:<34} {row['expected_family']:<12} {level:<6} {rules}"


def nonfinite(
    series: dict[tuple[str, str], tuple[list[int], list[float]]],
) -> list[tuple[int, dict[str, int]]]:
    """Steps with values that are not numbers, in order."""
    found: dict[int, dict[str, int]] = defaultdict(dict)
    for (key, _), (steps, values) in series.items():
        for step, value in zip(steps, values, strict=True):
            if not math.isfinite(value):
                found[step][key.replace("aggregate/", "metrics/")] = 1
    return sorted(found.items())


def peers_part(python: Path, half: Any, num: int, first: int) -> tuple[str, float, float]:
    """The table with the peers, on a sample of the same logs and on their own scenarios; their best found share and least false rate."""
    logs = [*healthy(half, num, first=first), *pathological(half, 1, ("medium", "high"), first)]
    rows = [row_of(log) for log in logs]
    table = {"trimtab": summarise([answer(log.id, alarms_of(log), 0.0) for log in logs], rows)}
    for peer in PEERS:
        table[peer] = summarise(without(ask(python, peer, rows), "plateau"), rows)
    text = [f"generated, {half} half, {num} healthy and {len(logs) - num} pathological (medium, high); peers' plateau left out",
            format_table(table)]  # fmt: skip
    own = [{**row, "prefixes": list(range(50, len(row["steps"]) + 1, 50))} for row in scenarios(python)]
    for author in ("rldoctor", "rlprobe"):
        mine = [row for row in own if row["peer"] == author]
        answers = ours_on(mine)
        text += [f"\n{author}'s scenarios", format_table({
            "trimtab": summarise(answers, mine), **{peer: summarise(ask(python, peer, mine), mine) for peer in PEERS}
        })]  # fmt: skip
        text += [scenario_line(row, found) for row, found in zip(mine, answers, strict=True)]
    best = max(table[p]["detected"] / max(1, table[p]["pathological"]) for p in PEERS)
    least = min(table[p]["false"]["high_rate"] or 0.0 for p in PEERS)
    return "\n".join(text), best, least


def main() -> int:
    """Print the tables; with --json, one line of figures last."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", choices=("tuning", "test"), default="test")
    parser.add_argument("--healthy", type=int, default=400, help="healthy generated logs of 600 steps")
    parser.add_argument("--seeds", type=int, default=4, help="pathological logs a pathology and strength")
    parser.add_argument(
        "--first", type=int, default=1000, help="first seed; below 1000 were looked at while rules were made"
    )
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--peer-logs", type=int, default=40, help="healthy logs the peers are asked about")
    parser.add_argument(
        "--quick", action="store_true", help="few logs and no peers: it checks that everything runs"
    )
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object of figures")
    options = parser.parse_args()
    if options.quick:
        options.healthy, options.seeds, options.no_peers = 4, 1, True
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    truths, answers, alarms = judge(healthy(options.half, options.healthy, first=options.first))
    sick, more, also = judge(pathological(options.half, options.seeds, first=options.first))
    truths, answers, alarms = truths + sick, answers + more, {**alarms, **also}
    unhealthy = sum(any(a.severity != "info" for a in alarms[t["id"]]) for t in truths if t["healthy"])
    graded = {
        kind: [bool(agreeing([a for a in alarms[t["id"]] if a.severity != "info" and a.step >= (t["onset"] or 0)])) for t in truths if of(t)]
        for kind, of in {
            "healthy": lambda t: t["healthy"],
            "medium": lambda t: t["strength"] == "medium",
            "high": lambda t: t["strength"] == "high",
        }.items()
    }  # fmt: skip
    told, steps, any_recorded, high_recorded, _ = recorded_table(options.half)
    summary = {
        s: summarise(answers, [t for t in truths if t["healthy"] or t["strength"] == s])
        for s in ("low", "medium", "high")
    }
    print(f"generated, {options.half} half, by strength of the movement (0.75, 1.5, 3 standard deviations)")
    print(format_table(summary))
    print(f"healthy logs with any alarm: {unhealthy}/{options.healthy}")
    print(
        "verdict unhealthy: "
        + ", ".join(f"{kind} {sum(found)}/{len(found)}" for kind, found in graded.items())
        + "\n"
    )
    print(by_rule(truths, alarms), "\n")
    print(told, "\n")

    clean = summary["medium"]["false"]
    total = clean["steps"] + steps
    any_false, high_false = clean["any"] + any_recorded, clean["high"] + high_recorded
    strong = [t for t in truths if t["healthy"] or t["strength"] in ("medium", "high")]
    both = summarise(answers, strong)
    best, least = math.nan, math.nan
    python = None if options.no_peers else peers_python()
    if python is not None:
        text, best, least = peers_part(python, options.half, options.peer_logs, options.first)
        print(text)
    seconds, megabytes = diagnose_10k()
    figures = {
        "healthy_steps": total,
        "false_high_per_10k_upper": round(PER * poisson_upper(high_false) / total, 3),
        "false_any_per_10k_upper": round(PER * poisson_upper(any_false) / total, 3),
        "detected_frac": round(both["detected"] / both["pathological"], 4),
        "detected_frac_low": round(share_interval(both["detected"], both["pathological"])[0], 4),
        "detected_medium_frac": round(summary["medium"]["detected"] / summary["medium"]["pathological"], 4),
        "detected_high_frac": round(summary["high"]["detected"] / summary["high"]["pathological"], 4),
        **post_tool_lead(truths, alarms),
        "healthy_logs_unhealthy": sum(graded["healthy"]),
        "high_logs_unhealthy_frac": round(float(np.mean(graded["high"])), 4),
        "peer_best_detected_frac": None if math.isnan(best) else round(best, 4),
        "peer_best_false_high_per_10k": None if math.isnan(least) else round(least, 3),
        **committed(),
        "flush_ms": round(flush_ms(), 3),
        "flush_cpu_ms": round(flush_cpu_ms(8 if options.quick else 40), 2),
        "diagnose_10k_s": round(seconds, 3),
        "diagnose_10k_mb": round(megabytes, 1),
        "rules": len(RULES) + len(STREAM_RULES),
    }
    for name, value in figures.items():
        print(f"{name:<32}{value}")
    if options.json:
        print(json.dumps({"figures": figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
