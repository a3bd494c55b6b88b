"""Real step times of four gloo processes with one slow phase, judged by us, and scored by us and by NVIDIA's resiliency extension.

    python benchmarks/straggler_processes.py --python VENV/bin/python

VENV holds `torch` and `nvidia-resiliency-ext==0.4.1` (it imports on CPU; its Detector needs CUDA's profiler, so its ReportGenerator is called
with the section times that the processes measured). Each case starts four processes on this machine that share its cores. A step is a sleep or
a matrix product a phase, each drawn anew by 5 %, then an all-reduce as `sync`. In one rank a phase takes 1.2 times as long from step
100 of 300 on; in the last case none does. Every 50 steps all processes make the extension's report over the steps since the last one.

Written to benchmarks/results/ranks/: `processes.json.gz` (seconds of each rank, phase and step, and the extension's scores), from which `figures` are
made again: the rank and phase that our judge names, when, what else it names, and the largest difference between the scores.

Four processes on two busy cores: the noise of the phases that compute is 0.6 to 1.3 (of the logarithm, long-run), that of the sleeps 0.06, of the
shortest 0.3. So by the power in ranks_stragglers.py the slow `backward` cannot be named in 200 steps here, and the others can. A slow rank's
later phases fall into times when the others compute, and may be slower too: that is seen, and not counted as another rank.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RAW = Path(__file__).parent / "results" / "ranks" / "processes.json.gz"
RANKS, STEPS, FIRST, EVERY = 4, 300, 100, 50
SLEEPS = {"rollout": 0.04, "tools": 0.015, "reward": 0.01}  # seconds
PRODUCTS = {
    "forward": 2,
    "backward": 4,
    "optimizer": 2,
}  # of 160 x 160 matrices, a tenth of a millisecond each
CASES = [(2, "rollout"), (1, "tools"), (3, "backward"), (0, "reward"), (-1, "")]


def worker(rank: int, store: str, slow_rank: int, slow_phase: str, out: str) -> None:
    """One process: the steps, and a report of the extension at every fiftieth."""
    import torch
    import torch.distributed as dist
    from nvidia_resiliency_ext.straggler.reporting import ReportGenerator
    from nvidia_resiliency_ext.straggler.statistics import Statistic

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    reports = ReportGenerator(["relative_perf_scores", "individual_perf_scores"], gather_on_rank0=True)
    draw, matrix, table, scores = random.Random(rank + 1), torch.randn(160, 160), [], []
    for step in range(STEPS):
        factor = {slow_phase: 1.2} if rank == slow_rank and step >= FIRST else {}
        seconds = {}
        for name in (*SLEEPS, *PRODUCTS):
            begin, size = time.perf_counter(), factor.get(name, 1.0) * draw.lognormvariate(0, 0.05)
            if name in SLEEPS:
                time.sleep(SLEEPS[name] * size)
            else:  # work of a set number of products; a slow rank has a fifth more of them
                for _ in range(round(20 * PRODUCTS[name] * size)):
                    matrix @ matrix
            seconds[name] = time.perf_counter() - begin
        begin = time.perf_counter()
        dist.all_reduce(torch.zeros(1000))
        seconds["sync"] = time.perf_counter() - begin
        table.append(seconds)
        if (step + 1) % EVERY == 0:
            summaries = {}
            for name in seconds:
                times = torch.tensor([row[name] for row in table[-EVERY:]], dtype=torch.float64)
                summaries[name] = {Statistic.MED: torch.median(times).item()}
            report = reports.generate_report(summaries, {})
            if rank == 0:
                scores.append(
                    {
                        "relative": report.section_relative_perf_scores,
                        "individual": report.section_individual_perf_scores,
                    }
                )
    Path(f"{out}.{rank}").write_text(json.dumps({"table": table, "scores": scores}))
    dist.destroy_process_group()


def measure(python: str = "") -> None:
    """Run all cases and write their raw numbers; without an interpreter that has the extension they stay as committed."""
    python = python or os.environ.get("TRIMTAB_NVRX_PYTHON", "")
    if not python:
        print("straggler_processes: TRIMTAB_NVRX_PYTHON is not set, so nothing was measured", file=sys.stderr)
        return
    cases = []
    for slow_rank, phase in CASES:
        with tempfile.TemporaryDirectory() as folder:
            out = f"{folder}/out"
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
            children = [
                subprocess.Popen(
                    [python, __file__, "--worker", str(rank), f"{folder}/store", str(slow_rank), phase, out],
                    env=environment,
                )
                for rank in range(RANKS)
            ]
            codes = [child.wait(timeout=550) for child in children]
            assert codes == [0] * RANKS, codes
            rows = [json.loads(Path(f"{out}.{rank}").read_text()) for rank in range(RANKS)]
        names = list(rows[0]["table"][0])
        seconds = [[[round(step[name], 10) for name in names] for step in row["table"]] for row in rows]
        cases.append(
            {
                "rank": slow_rank,
                "phase": phase,
                "phases": names,
                "seconds": seconds,
                "nvidia": rows[0]["scores"],
            }
        )
    RAW.parent.mkdir(parents=True, exist_ok=True)
    RAW.write_bytes(gzip.compress(json.dumps(cases, separators=(",", ":")).encode(), mtime=0))


def named(case: dict[str, Any]) -> dict[str, Any]:
    """What our judge names in one case: the planted phase after how many steps, and anything else."""
    from trimtab.distributed.stragglers import MachineJudge

    judge, delay, others = MachineJudge(), None, []
    for step in range(STEPS):
        rows = {
            rank: {"phases_s": dict(zip(case["phases"], seconds[step], strict=True))}
            for rank, seconds in enumerate(case["seconds"])
        }
        judge.update(step, rows)
        for one in judge.slow:
            if (one.rank, one.phase) == (case["rank"], case["phase"]) and step >= FIRST:
                delay = step - FIRST if delay is None else delay
            elif [one.rank, one.phase] not in others:
                others.append([one.rank, one.phase])
    return {"rank": case["rank"], "phase": case["phase"], "delay": delay, "others": others}


def score_differences(case: dict[str, Any]) -> list[float]:
    """Our scores less the extension's, on the same sections of the same processes."""
    from trimtab.distributed.stragglers import individual_scores, relative_scores

    reports = [
        {
            rank: {
                name: [row[p] for row in seconds[begin : begin + EVERY]]
                for p, name in enumerate(case["phases"])
            }
            for rank, seconds in enumerate(case["seconds"])
        }
        for begin in range(0, STEPS, EVERY)
    ]
    individual, differences = individual_scores(reports), []
    for report, own, theirs in zip(reports, individual, case["nvidia"], strict=True):
        for kind, mine in (("relative", relative_scores(report)), ("individual", own)):
            for section, ranks in theirs[kind].items():
                differences += [abs(mine[section][int(rank)] - score) for rank, score in ranks.items()]
    return differences


def figures(quick: bool = False) -> dict[str, float]:
    """Return the figures of the recorded processes."""
    cases = json.loads(gzip.decompress(RAW.read_bytes()))
    judged = [named(case) for case in (cases[:1] if quick else cases)]
    planted = [one for one in judged if one["rank"] >= 0]
    return {
        "straggler_real_named_frac": sum(one["delay"] is not None for one in planted) / len(planted),
        "straggler_real_wrong_ranks": sum(rank != one["rank"] for one in judged for rank, _ in one["others"]),
        "nvidia_score_difference": max(max(score_differences(case)) for case in cases),
        "nvidia_scores_compared": sum(len(score_differences(case)) for case in cases),
    }


def main() -> None:
    """Run as a worker, measure, or print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", help="of the environment with the extension: measure again")
    parser.add_argument("--worker", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        rank, store, slow, phase, out = options.worker
        worker(int(rank), store, int(slow), phase, out)
        return
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    if options.python:
        measure(options.python)
    for case in json.loads(gzip.decompress(RAW.read_bytes())):
        print(json.dumps(named(case)))
    print(json.dumps(figures(), indent=1))


if __name__ == "__main__":
    main()
