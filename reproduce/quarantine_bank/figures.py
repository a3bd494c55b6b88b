"""What each arm saved, over complete seeds, and how often a healthy tool is touched."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reproduce.archives import unpacked
from reproduce.collapse_bank.figures import first_commit, lower_bound
from reproduce.guard_bank.figures import SAVED, share, sign_test
from reproduce.quarantine_bank.arms import ARMS, CAUSES, OUTAGE, TEST_SEEDS, Record
from trimtab.errors import RunError
from trimtab.guard.policies.quarantine_tool import ToolQuarantineOptions
from trimtab.guard.quarantine.tool_quarantine import ToolQuarantine
from trimtab.traces.core.tool_call import ToolCall

__all__ = ["PAGE", "Bank", "false_entries", "figures_of", "load_records", "registered_before_data", "table_of"]  # fmt: skip

PAGE = Path("docs") / "quarantine-test.md"
Figures = dict[str, float | int | None]
NULL_RATES, NULL_STEPS, NULL_TOOLS, NULL_EPISODES = (0.0, 0.01, 0.05, 0.2), 1_000, 4, 12
"""The null: tools whose failures do not change, shown for so many steps with so many episodes a step."""
OVERDISPERSION = 8.0
"""Of the bursty null: the step's rate is drawn from a beta distribution of this precision."""
FIELDS = {"cause": str, "arm": str, "seed": int, "rewards": list, "score": float, "actions": list, "masked": list}  # fmt: skip


def load_records(store: Path) -> list[Record]:
    """Read all records of a store of archives; raises RunError for a damaged one."""
    if not any(store.glob("*.zip")):
        return []
    records = []
    for path in sorted(unpacked(store).glob("*/*.json")):
        try:
            record = json.loads(path.read_text())
        except ValueError as error:
            raise RunError(f"{path.name} is damaged: {error}; restore it (git restore)") from error
        for name, kind in FIELDS.items():
            if not isinstance(record.get(name), kind):
                raise RunError(f"{path.name} has no {name!r}; restore it (git restore)")
        records.append(record)
    return records


class Bank:
    """The complete seeds of a half, and what counts as saved among them."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.runs = {(r["cause"], r["arm"], r["seed"]): r for r in records}
        wanted = [("healthy", "none"), *((cause, arm) for cause in CAUSES for arm in ARMS[cause])]
        seeds = sorted({seed for _, _, seed in self.runs})
        self.seeds = [s for s in seeds if all((cause, arm, s) in self.runs for cause, arm in wanted)]
        scores = [run["score"] for run in self.of("healthy", "none")]
        self.level = float(np.mean(scores)) if scores else float("nan")
        """Mean score of the policies that met no fault."""

    def of(self, cause: str, arm: str) -> list[Record]:
        """Return the runs of an arm, by seed."""
        return [self.runs[cause, arm, seed] for seed in self.seeds]

    def hits(self, cause: str, arm: str) -> list[bool]:
        """Return whether each run ended well: its policy scores 90 % of those that met no fault."""
        return [run["score"] >= SAVED * self.level for run in self.of(cause, arm)]

    def harmed(self, cause: str) -> list[int]:
        """Return the indices of the seeds whose run without action did not end well."""
        return [index for index, hit in enumerate(self.hits(cause, "none")) if not hit]

    def saved(self, cause: str, arm: str) -> list[bool]:
        """Return whether each harmed run was saved by an arm."""
        hits = self.hits(cause, arm)
        return [hits[index] for index in self.harmed(cause)]


def figures_of(bank: Bank) -> Figures:
    """Return the figures of both causes; None where nothing was run."""
    figures: Figures = {"test_seeds": len(bank.seeds) or None}
    if not bank.seeds:
        return figures
    for cause in CAUSES:
        behind = cause.removeprefix("tool_fault")
        figures[f"harmed_runs{behind}"] = len(bank.harmed(cause))
        for arm in ARMS[cause]:
            figures[f"saved_frac_{arm}{behind}"] = share(bank.saved(cause, arm))
            figures[f"score_{arm}{behind}"] = mean(bank.of(cause, arm), lambda run: run["score"])
        mask = bank.saved(cause, "mask")
        figures[f"saved_frac_mask_lower{behind}"] = lower_bound(sum(mask), len(mask))
        for other in ("none", "placebo"):
            if other in ARMS[cause]:
                rest = bank.saved(cause, other)
                figures[f"mask_over_{other}_p{behind}"] = sign_test(mask, rest) if mask else None
    delays = [delay for cause in CAUSES[:1] for run in bank.of(cause, "mask") for delay in entry_delays(run)]
    backs = [back for run in bank.of(CAUSES[1], "mask") for back in return_delays(run)]
    figures["entry_delay_median"] = float(np.median(delays)) if delays else None
    figures["return_delay_median"] = float(np.median(backs)) if backs else None
    figures["score_healthy"] = bank.level
    figures["healthy_touched_frac"] = share([bool(run["actions"]) for run in bank.of("healthy", "none")])
    before = [run for cause in CAUSES for arm in ("mask", "withhold") for run in bank.of(cause, arm)]
    figures["touched_before_fault_frac"] = share([any(a["step"] < run["fault_step"] for a in run["actions"]) for run in before])  # fmt: skip
    return figures


def entry_delays(run: Record) -> list[int]:
    """Return the steps from the fault to each tool's first quarantine."""
    first: dict[str, int] = {}
    for row in run["actions"]:
        if row["action"] == "quarantine_tool" and row["after"] == 0.0:
            first.setdefault(row["tool"], row["step"] - run["fault_step"] + 1)
    return list(first.values())


def return_delays(run: Record) -> list[int]:
    """Return the steps from the end of the outage to each tool's return."""
    end = run["fault_step"] - 1 + OUTAGE
    rows = [row for row in run["actions"] if row["action"] == "quarantine_tool" and row["after"] == 1.0]
    return [row["step"] - end for row in rows if row["step"] > end]


def false_entries(rate: float, *, bursty: bool, seed: int = 0, steps: int = NULL_STEPS) -> tuple[int, int]:
    """Return entries, and steps of tools, on calls whose rate of failures does not change.

    Args:
        rate: Of failures by the environment, a call.
        bursty: Failures come in bursts: each step has a rate of its own, drawn around `rate`.
        seed: Of the draws.
        steps: Steps of each tool.
    """
    draws = np.random.default_rng([seed, int(1_000 * rate), bursty])
    quarantine = ToolQuarantine(ToolQuarantineOptions(enabled=True), lambda: {"tool_broken_gradient": ("all",)})  # fmt: skip
    entries = 0
    for step in range(steps):
        for tool in range(NULL_TOOLS):
            level = rate
            if bursty and rate:
                level = float(draws.beta(rate * OVERDISPERSION, (1 - rate) * OVERDISPERSION))
            for failed in draws.random(NULL_EPISODES) < level:
                quarantine.note_call(ToolCall(f"tool{tool}", blame="infrastructure" if failed else ""))
        entries += sum(getattr(action, "after", 1.0) == 0.0 for action in quarantine.close(step))
    return entries, steps * NULL_TOOLS


def null_figures(steps: int = NULL_STEPS) -> Figures:
    """Return false entries a thousand steps of a tool, on independent failures and on bursts."""
    figures: Figures = {}
    for bursty in (False, True):
        counts = [false_entries(rate, bursty=bursty, steps=steps) for rate in NULL_RATES]
        name = "false_entries_per_1000_steps" + ("_bursty" if bursty else "")
        figures[name] = 1_000 * sum(e for e, _ in counts) / sum(n for _, n in counts)
    return figures


def mean(runs: Sequence[Record], value: Callable[[Record], float]) -> float:
    """Return the mean of a value over runs, nan for none."""
    return float(np.mean([value(run) for run in runs])) if runs else float("nan")


def table_of(bank: Bank) -> str:
    """Return one line a cause and arm."""
    lines = [
        f"{len(bank.seeds)} complete seeds; policies that met no fault score {bank.level:.3f}, saved is {SAVED * bank.level:.3f} and more",
        f"{'cause':16s} {'arm':9s} saved   score (range)        last 30 steps  actions  left out of 48",
    ]
    for cause in CAUSES:
        for arm in ARMS[cause]:
            lines.append(f"{cause:16s} {arm:9s} {_row(bank, cause, arm)}")
    return "\n".join(lines)


def _row(bank: Bank, cause: str, arm: str) -> str:
    runs, hits = bank.of(cause, arm), bank.saved(cause, arm)
    scores = [run["score"] for run in runs]
    numbers: list[Any] = [mean(runs, lambda run: float(np.mean(run["rewards"][-30:])))]
    numbers += [
        mean(runs, lambda run: len(run["actions"])),
        mean(runs, lambda run: float(np.mean(run["masked"]))),
    ]
    return f"{sum(hits):d} of {len(hits):d}  {np.mean(scores):.3f} ({min(scores):.3f} to {max(scores):.3f})  {numbers[0]:11.3f} {numbers[1]:9.1f} {numbers[2]:9.1f}"


def registered_before_data(root: Path, store: Path) -> int | None:
    """Return 1 when the page was committed before any archive of test seeds, 0 when not, None where one is missing."""
    page = first_commit(root, PAGE)
    inside = store.is_relative_to(root)
    data = [first_commit(root, path.relative_to(root)) for path in sorted(store.glob("*-test.zip")) if inside]
    times = [time for time in data if time is not None]
    return None if page is None or not times else int(page < min(times))


def test_records(records: Sequence[Record]) -> list[Record]:
    """Return the records of test seeds."""
    return [record for record in records if record["seed"] in TEST_SEEDS]
