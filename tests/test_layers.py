"""Imports point down, and torch stays at the edges (house rule 1). The boxes and layers are the table of docs/architecture.md."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "trimtab"
LAYER = {
    "errors": 0, "types": 0, "typing": 0, "catalog": 0, "stats": 0, "safe_files": 0, "_version": 0, "_moved": 0,
    "capture": 1, "runs": 1, "metric_logs": 1, "traces": 1, "objectives": 1, "tools": 1, "rewards": 1,
    "measure": 2, "lab": 2,
    "distributed": 3, "detect": 4, "guard": 5, "report": 6,
    "cli": 7, "monitor": 7, "adapters": 7, "training": 7, "__init__": 8, "__main__": 8,
}  # fmt: skip
SAME_LAYER = {
    ("tools", "traces"), ("rewards", "traces"), ("capture", "types"), ("types", "errors"), ("types", "typing"), ("stats", "typing"), ("catalog", "typing"), ("stats", "errors"),
    ("safe_files", "catalog"), ("safe_files", "errors"),
    ("catalog", "errors"), ("adapters", "monitor"), ("training", "monitor"), ("training", "adapters"), ("cli", "monitor"),
}  # fmt: skip
TORCH_BOXES = {"objectives", "distributed", "training", "lab", "adapters"}
FRAMEWORK_BOXES = {"adapters", "training"}
FRAMEWORKS = {"trl", "verl"}


def _box(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def _imports(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found += [node.module or ""] + [f"{node.module}.{alias.name}" for alias in node.names]
    return found


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_down(path: Path) -> None:
    box = _box(path)
    assert box in LAYER, f"{box} is not a box of the design; add it to docs/architecture.md first"
    for name in _imports(path):
        root, _, rest = name.partition(".")
        if root == "trimtab" and rest:
            target = rest.split(".")[0]
            if target == box or target not in LAYER:  # itself, or a name exported by trimtab/__init__
                continue
            lower = LAYER[target] < LAYER[box]
            assert lower or (box, target) in SAME_LAYER, f"{path}: {box} must not import {target}"
        if root in ("torch", "transformers", "accelerate", "peft", "safetensors", "tokenizers"):
            assert box in TORCH_BOXES, f"{path}: {box} must not import {root}"
        if root in FRAMEWORKS:
            assert box in FRAMEWORK_BOXES, f"{path}: only adapters and training import {root}"


def test_the_walk_sees_files() -> None:
    assert len(FILES) > 30
