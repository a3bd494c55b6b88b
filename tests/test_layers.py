"""Imports point down, package by package, and torch stays at the edges (house rule 1).

`ORDER` lists every package from the bottom up; the modules of the root stand by name. A module may import its own package and
what stands below it. So no two packages import each other, and docs/architecture.md can draw the house as floors.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import SOURCE, modules, parse, relative

ORDER = (
    "_moved", "_version", "catalog", "errors", "safe_files", "typing", "user_code", "stats/histograms",
    "stats/summaries", "stats", "types", "capture", "metric_logs/formats", "metric_logs/frameworks",
    "metric_logs", "curriculum", "objectives/routing_replay", "objectives/weights", "objectives", "runs/checkpoints", "runs", "traces/core", "traces/errors",
    "traces/files", "traces/messages", "traces/native", "traces/readers/otel", "traces/readers/ptt_steps",
    "traces/readers", "traces/readers/coding_agents", "traces/readers/multi_agent", "traces/readers/trl", "traces/readers/verifiers", "traces/table", "traces",
    "traces/export", "snapshots", "parity", "rewards", "rewards/audit", "rewards/environment", "tools", "tools/targets", "lab", "measure/state", "measure/sequences", "measure/tokens", "measure/policy", "measure/steps",
    "measure", "measure/traces", "distributed/stragglers", "distributed", "detect/detectors", "detect/detectors/mean_shift", "detect/rules",
    "detect", "detect/traces", "detect/user_rules", "guard/policies", "guard/quarantine", "guard", "report/ranks", "report", "report/post_mortem", "report/behaviour", "report/html", "report/terminal",
    "tools/stress",
    "report/tools",
    "report/traces", "report/rewards", "report/launch", "preflight", "preflight/resume", "sinks", "alerts", "monitor/ranks", "monitor/ending", "monitor", "adapters", "adapters/snapshots", "adapters/skyrl", "adapters/tinker", "adapters/trl/control", "adapters/trl", "adapters/verl", "cli", "training/minirl",
    "training", "training/llamacpp",
)  # fmt: skip
FLOORS = (
    ("errors", "_version", "_moved", "typing", "types", "stats", "catalog", "safe_files", "user_code"),
    ("capture", "curriculum", "runs", "metric_logs", "traces", "objectives", "tools", "rewards", "parity"),
    ("measure", "lab", "snapshots"),
    ("distributed",),
    ("detect",),
    ("guard",),
    ("report",),
    ("sinks", "alerts"),
    ("monitor", "preflight"),
    ("adapters", "training", "cli"),
    ("__init__", "__main__"),
)
"""The boxes of the design. Boxes of one floor do not import each other, but for `SAME_FLOOR`."""
SAME_FLOOR = frozenset({
    ("types", "errors"), ("types", "typing"), ("stats", "errors"), ("stats", "typing"), ("catalog", "errors"), ("catalog", "typing"), ("safe_files", "catalog"), ("safe_files", "errors"), ("user_code", "errors"),
    ("tools", "traces"), ("rewards", "traces"), ("parity", "traces"), ("rewards", "metric_logs"), ("capture", "types"), ("training", "adapters"), ("alerts", "sinks"),
})  # fmt: skip
TORCH_BOXES = frozenset({"objectives", "distributed", "training", "lab", "adapters"})
TORCH = frozenset({"torch", "transformers", "accelerate", "peft", "safetensors", "tokenizers"})
FRAMEWORKS = frozenset({"skyrl", "tinker", "trl", "verl"})


def box(module: str) -> str:
    return module.split("/")[0].removesuffix(".py")


def package(module: str) -> str:
    """The package of `runs/reader.py` is `runs`; a module of the root is its own."""
    return module.rpartition("/")[0] or module.removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    """Yield what a module imports: `torch.nn`, or a module of ours as `runs/reader.py`."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            yield ours(name) if name.split(".")[0] == "trimtab" else name


def ours(name: str) -> str:
    parts = name.split(".")[1:]
    while parts:
        stem = SOURCE.joinpath(*parts)
        for file in (stem.with_suffix(".py"), stem / "__init__.py"):
            if file.exists():
                return relative(file)
        parts = parts[:-1]
    return "__init__.py"


PATHS = [pytest.param(path, id=relative(path)) for path in modules()]


@pytest.mark.parametrize("path", PATHS)
def test_imports_point_down(path: Path) -> None:
    here = relative(path)
    floor = {name: number for number, names in enumerate(FLOORS) for name in names}
    assert box(here) in floor, f"{box(here)} is not a box of the design; add it to docs/architecture.md first"
    for name in imported(path):
        if name.endswith(".py"):
            mine, other = box(here), box(name)
            below = floor[other] < floor[mine] or other == mine or (mine, other) in SAME_FLOOR
            assert below or other == "__init__", f"{here} must not import {name}"
            if package(name) != package(here) and not {mine, other} & {"__init__", "__main__"}:
                assert ORDER.index(package(name)) < ORDER.index(package(here)), (
                    f"{here} imports {name}, which stands above it"
                )
        root = name.split(".")[0]
        assert root not in TORCH or box(here) in TORCH_BOXES, f"{here} must not import {root}"
        assert root not in FRAMEWORKS or box(here) in {"adapters", "training"}, (
            f"{here} must not import {root}"
        )


def test_the_order_names_every_package_once() -> None:
    assert sorted(ORDER) == sorted({package(relative(path)) for path in modules()} - {"__init__", "__main__"})


def test_a_circle_would_be_seen() -> None:
    assert ORDER.index("stats") < ORDER.index("measure") < ORDER.index("detect") < ORDER.index("cli")
