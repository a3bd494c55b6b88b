"""Figures of the ranks that were stopped and killed: read from benchmarks/results/rank_faults.jsonl, measured by reproduce/rank_faults.py."""

from __future__ import annotations

from typing import Any

from reproduce.rank_faults import STORE, figures_of, main, recorded


def measure() -> None:
    """Run the arms that are missing in the store: some 20 minutes for all."""
    main(["--run", "--json"])


def figures(quick: bool = False) -> dict[str, Any]:
    """`pause_added_s`, `rank_named_frac` and what they rest on; the recorded ones also with `quick`."""
    del quick
    return figures_of(recorded(STORE))
