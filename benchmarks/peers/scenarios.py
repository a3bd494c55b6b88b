"""The peers' own published scenarios in our names, a JSON line a log. Run by the peers' Python; nothing fetched is committed.

    $TRIMTAB_PEERS_PYTHON benchmarks/peers/scenarios.py [out/bench/peer_scenarios.jsonl] [--seeds 3] [--first 0] [--steps N] [--strength F]

rldoctor's `simulate` (12 scenarios of 400 steps) and rlprobe's `generate_run` (healthy and 14, of 500 steps; onset at half), seeds 0, 1, 2:
`{"id", "peer", "scenario", "healthy", "expected_family", "onset", "steps", "series", "unmapped", "config", "own_findings"}`.

`--strength` below 1: each number lies that part of the way from the healthy log of the same seed to the scenario's; numbers that are missing
in either stay as the scenario has them. `own_findings` is empty then, and where `--steps` is given.

`onset` is null where a scenario has none: rldoctor's are wrong from their first step on, and healthy logs. `unmapped` are the
peer's keys that have no name among ours, so what they show is lost to everybody: the components that are all there is to see of
`format_domination`, `format_gaming`'s, and KL by position in `ref_drift_asymmetry`. `own_findings` is what the peer says of its
untranslated original (`[rule, severity]`): the difference from its findings on this line is what the translation costs it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks.peers.families import SCENARIOS
from benchmarks.peers.run_peer import Found, rldoctor_judge, rlprobe_judge
from benchmarks.peers.translate import to_ours

RLDOCTOR_STEPS = 400
RLPROBE_STEPS = 500


def line(
    peer: str,
    scenario: str,
    seed: int,
    rows: list[dict[str, Any]],
    onset: int | None,
    own: Found,
    config: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """One scenario in our names."""
    steps, series, unmapped = to_ours(peer, rows)
    return {
        "id": f"{peer}/{scenario}/{seed}",
        "peer": peer,
        "scenario": scenario,
        "healthy": scenario == "healthy",
        "expected_family": SCENARIOS[peer][scenario],
        "onset": onset,
        "steps": steps,
        "series": series,
        "unmapped": unmapped,
        "config": config,
        "own_findings": [[rule, severity] for rule, severity, _ in own],
    }


def weaker(
    rows: list[dict[str, Any]], healthy: list[dict[str, Any]], strength: float
) -> list[dict[str, Any]]:
    """The rows with each number the part `strength` of the way from the healthy row's; whole numbers stay whole."""
    return [
        {name: _between(other.get(name), value, strength) for name, value in row.items()}
        for row, other in zip(rows, healthy, strict=True)
    ]


def _between(base: Any, value: Any, strength: float) -> Any:
    if isinstance(value, dict) and isinstance(base, dict):
        return {name: _between(base.get(name), one, strength) for name, one in value.items()}
    if not isinstance(value, float) or not isinstance(base, float):
        return value
    return base + strength * (value - base)


def rldoctor_lines(
    seeds: range, length: int | None = None, strength: float = 1.0
) -> Iterator[dict[str, Any]]:
    """rldoctor's scenarios. Raises KeyError where it publishes one that `families.SCENARIOS` does not know."""
    from rl_doctor import simulate as module

    for scenario in module.SCENARIOS:
        for seed in seeds:
            steps = length or RLDOCTOR_STEPS
            rows, config = module.simulate(scenario, n_steps=steps, seed=seed)
            if strength < 1:
                rows = weaker(rows, module.simulate("healthy", n_steps=steps, seed=seed)[0], strength)
            own = [] if length or strength < 1 else rldoctor_judge(rows, config)
            yield line("rldoctor", scenario, seed, rows, None, own, config)


def rlprobe_lines(seeds: range, length: int | None = None, strength: float = 1.0) -> Iterator[dict[str, Any]]:
    """rlprobe's scenarios. Raises KeyError where it publishes one that `families.SCENARIOS` does not know."""
    from rlprobe.storage import RunReader
    from rlprobe.testing.synth import PATHOLOGIES, generate_run

    for scenario in ("healthy", *PATHOLOGIES):
        for seed in seeds:
            pathology, steps = None if scenario == "healthy" else scenario, length or RLPROBE_STEPS
            with tempfile.TemporaryDirectory() as name:
                folder = generate_run(Path(name) / "run", pathology, n_steps=steps, seed=seed)
                rows = RunReader(folder).steps_table().to_pylist()
                if strength < 1:
                    calm = generate_run(Path(name) / "calm", None, n_steps=steps, seed=seed)
                    rows = weaker(rows, RunReader(calm).steps_table().to_pylist(), strength)
                own = [] if length or strength < 1 else rlprobe_judge(folder)
                yield line("rlprobe", scenario, seed, rows, None if pathology is None else steps // 2, own)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", nargs="?", type=Path, default=Path("out/bench/peer_scenarios.jsonl"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--strength", type=float, default=1.0)
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    partial = options.out.with_suffix(".partial")
    count = 0
    with partial.open("w", encoding="utf-8") as out:
        chosen = range(options.first, options.first + options.seeds), options.steps, options.strength
        for lines in (rldoctor_lines(*chosen), rlprobe_lines(*chosen)):
            for row in lines:
                out.write(json.dumps(row) + "\n")
                count += 1
    partial.replace(options.out)
    print(f"{count} scenarios in {options.out}")


if __name__ == "__main__":
    main()
