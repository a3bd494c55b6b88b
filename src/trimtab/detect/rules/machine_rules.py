"""Rules on the machine: slow ranks, memory that runs out, one episode that holds the step.

Their readings come from `distributed/stragglers`, which states the false-alarm rate of its own tests, so they
have no part of the budget. They are neither tail nor aggregate rules: no verdict of calm rests on them.
"""

from __future__ import annotations

from trimtab.detect.rules.rule import Rule, threshold

_SOURCE = "docs/how-to/stragglers.md; measured by benchmarks/ranks.py"
_NVIDIA = f"{_SOURCE}; nvidia_resiliency_ext straggler detection"

MACHINE_RULES: tuple[Rule, ...] = (
    Rule(
        "phase_slow",
        "phase/slow_ratio",
        slice="rank/*",
        kind="machine",
        family="throughput",
        severity="info",
        weight=0.0,
        detector=threshold("straggler_healthy", 1, confirm=1),
        what="a rank takes longer for one phase than the others do, or than it did",
        why="Where phases end in a collective, all ranks wait for the slowest.",
        advice="Look at that machine: clocks, heat, other processes; for rollouts, its tools and prompts.",
        not_when="Work that is uneven on purpose, such as an evaluation on one rank.",
        reference=_NVIDIA,
    ),
    Rule(
        "straggler",
        "straggler/lost_frac",
        slice="rank/*",
        kind="machine",
        family="throughput",
        weight=0.0,
        detector=threshold("straggler_lost", 1, confirm=1),
        what="all ranks lose part of every step to a slow one",
        why="The job runs at the speed of its slowest rank, and pays for all of them.",
        advice="Take that machine out, or move its work; compare its phases with the others' first.",
        not_when="Work that is uneven on purpose, such as an evaluation on one rank.",
        reference=_NVIDIA,
    ),
    Rule(
        "memory_growth",
        "memory/steps_left",
        slice="rank/*",
        kind="machine",
        family="throughput",
        weight=0.0,
        detector=threshold("oom_horizon", -1, confirm=1),
        what="memory grows and reaches its limit soon",
        why="The process will be killed, without a traceback, and the job with it.",
        advice="Save a checkpoint now. Look for lists that keep tensors or episodes; shorten sequences.",
        not_when="Memory that is still warming up, as in the first steps of longer sequences.",
        reference=_SOURCE,
    ),
    Rule(
        "memory_imbalance",
        "memory/imbalance",
        slice="rank/*",
        kind="machine",
        family="throughput",
        severity="info",
        weight=0.0,
        detector=threshold("memory_apart", 1, confirm=2),
        what="a rank holds far more memory than the median of the others",
        why="It will be the one that runs out.",
        advice="Balance sequences by length over ranks; see what this rank alone does (logging, saving).",
        not_when="A rank that gathers or saves for all.",
        reference=_SOURCE,
    ),
    Rule(
        "slow_episode",
        "episode/held_frac",
        kind="machine",
        family="throughput",
        weight=0.0,
        detector=threshold("episode_held", 1, confirm=1),
        what="steps wait long for one last episode",
        why="All others are done, and every rank stands still until it ends.",
        advice="Bound the seconds of an episode and of its tools; leave out what comes too late.",
        not_when="Few episodes a step: the longest of four is often twice the next.",
        reference=_SOURCE,
    ),
)
