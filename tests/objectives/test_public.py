"""The page of objectives names what exists, names all of it, and its example runs."""

from __future__ import annotations

import re
from pathlib import Path

import trimtab.objectives as objectives
from trimtab.objectives import routing_replay

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "objectives.md").read_text(encoding="utf-8")


UNLISTED = {"BatchRules", "MISSING", "Recording", "Replayed", "aggregate", "check_routes", "count_marks", "merge_counts", "ratio_at", "route_dtype", "sequence_lengths"}  # fmt: skip
WORDS = {
    "delta",
    "required",
    "dropped",
    "keep",
    "high",
    "level",
    "replaying",
    "get_peft_model",
    "text",
    "post_tool",
}


def test_every_function_of_the_page_exists_and_every_function_is_on_the_page() -> None:
    public = set(objectives.__all__) | set(routing_replay.__all__)
    assert not {name for name in public - UNLISTED if not re.search(rf"\b{name}\b", PAGE)}
    functions = PAGE.split("\n## The trainer\n")[
        0
    ]  # below, tables name fields of the configuration and keys of verl
    tables = "\n".join(line for line in functions.splitlines() if line.startswith("|"))
    named = {
        name
        for cell in re.findall(r"`([^`]*)`", tables)
        for name in re.findall(r"^([a-z_0-9]{4,})(?:\(|$)", cell)
    }
    assert named - WORDS <= public
    assert len(named) > 25


def test_the_exports_are_importable_and_sorted() -> None:
    for module in (objectives, routing_replay):
        assert all(hasattr(module, name) for name in module.__all__)
        assert list(module.__all__) == sorted(module.__all__)


def test_the_example_runs(capsys) -> None:
    code = re.search(r"```python\n(.*?)```", PAGE, re.S)
    assert code
    exec(compile(code.group(1), "docs/reference/objectives.md", "exec"), {})
    assert "'clipped_high': 0" in capsys.readouterr().out
