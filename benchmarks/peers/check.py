"""Do the peers answer as they should? A small sample with a known truth, and their own scenarios.

    python benchmarks/peers/check.py [--peers-python PATH] [--every 50] [--seeds 3]

The sample: healthy logs of 300 steps whose every number is an AR(1) (coefficient 0.7), about a level or, the reward, a slow climb,
and as many whose KL grows from step 150 on: to ten times its level (0.5 nats), to sixty times. Then the same with a reward that does
not climb. Then each peer's scenarios, judged by all three.
`translation`: scenarios in which a peer's alarms differ between its own original and our translation of it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks.peers.client import ask, peers_python, scenarios, versions
from benchmarks.peers.table import format_table, summarise
from benchmarks.peers.translate import PEERS

LEVELS = {
    "reward": (0.5, 0.03), "reward_std": (0.4, 0.02), "zero_std_frac": (0.15, 0.02), "entropy": (1.5, 0.05),
    "kl": (0.05, 0.005), "clip_frac": (0.05, 0.01), "grad_norm": (0.8, 0.1), "loss": (0.0, 0.02),
    "advantage_std": (1.0, 0.05), "length": (400.0, 15.0), "truncated_frac": (0.02, 0.004),
    "repetition_frac": (0.02, 0.004), "step_s": (40.0, 1.0), "learning_rate": (1e-6, 0.0),
}  # fmt: skip
"""Level and standard deviation of each number of the sample."""

SAMPLES: dict[str, dict[str, Any]] = {
    "KL to 0.5": {"times": 10.0},
    "KL to 3": {"times": 60.0},
    "KL to 3, flat reward": {"times": 60.0, "climb": 0.0},
}


def ar1(rng: np.random.Generator, n: int, coefficient: float = 0.7) -> np.ndarray:
    """A stationary AR(1) of variance 1."""
    values = rng.normal(size=n)
    for i in range(1, n):
        values[i] = coefficient * values[i - 1] + np.sqrt(1 - coefficient**2) * values[i]
    return values


def sample(
    count: int = 20, n: int = 300, onset: int = 150, times: float = 60.0, climb: float = 0.3, seed: int = 0
) -> list[dict[str, Any]]:
    """`count` healthy logs and `count` with a KL that climbs linearly from the onset to `times` its level.

    The reward climbs by `climb` over the log: rldoctor takes one that does not for a plateau, which it is.
    """
    rng = np.random.default_rng(seed)
    logs = []
    for i in range(2 * count):
        healthy = i < count
        series = {name: level + spread * ar1(rng, n) for name, (level, spread) in LEVELS.items()}
        series["reward"] += climb * np.linspace(0, 1, n)
        if not healthy:
            series["kl"][onset:] *= np.linspace(1, times, n - onset)
        logs.append(
            {
                "id": f"{'healthy' if healthy else 'kl'}/{i}",
                "healthy": healthy,
                "expected_family": "healthy" if healthy else "kl",
                "onset": None if healthy else onset,
                "steps": list(range(n)),
                "series": {name: values.tolist() for name, values in series.items()},
            }
        )
    return logs


def prefixed(logs: list[dict[str, Any]], every: int) -> list[dict[str, Any]]:
    """The logs with a checkpoint every so many steps."""
    return [{**log, "prefixes": list(range(every, len(log["steps"]) + 1, every))} for log in logs]


def translation(answers: list[dict[str, Any]], logs: list[dict[str, Any]]) -> list[str]:
    """A line for each scenario in which a peer's verdict is not that on its own original."""
    lines = []
    for answer, log in zip(answers, logs, strict=True):
        ours = {rule for rule, severity in answer["whole"] if severity != "info"}
        own = {rule for rule, severity in log["own_findings"] if severity != "info"}
        if ours != own:
            lines.append(f"  {log['id']:<36} lost {sorted(own - ours)}, new {sorted(ours - own)}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers-python")
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    python = peers_python(options.peers_python)
    if python is None:
        return
    print(versions(python))
    for title, choice in SAMPLES.items():
        logs = prefixed(sample(**choice), options.every)
        print(f"\nsample, {title}, checked every {options.every} steps")
        print(format_table({peer: summarise(ask(python, peer, logs), logs) for peer in PEERS}))
    own = prefixed(scenarios(python, seeds=options.seeds), options.every)
    for author in ("rldoctor", "rlprobe"):
        theirs = [log for log in own if log["peer"] == author]
        answers = {peer: ask(python, peer, theirs) for peer in PEERS}
        print(f"\n{author}'s scenarios")
        print(format_table({peer: summarise(answers[peer], theirs) for peer in PEERS}))
        print("\n".join(["translation", *translation(answers[author], theirs)]))


if __name__ == "__main__":
    main()
