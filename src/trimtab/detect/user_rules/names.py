"""What a rule file may name: the rule itself, a reading, a slice where that reading can be."""

from __future__ import annotations

import difflib
import re
from typing import Any

from trimtab.catalog import READINGS
from trimtab.detect.rules.all_rules import RULES, STREAM_RULES
from trimtab.detect.user_rules.yaml_nodes import At

_SLICES = ("all", "text", "post_tool")
_SLICE_KINDS = ("post_tool/", "phase/", "turn/", "source/", "tool/", "reward/", "file/")
TAKEN = {rule.name for rule in RULES} | set(STREAM_RULES)


def name_of(item: At) -> str:
    """The rule's name, an identifier that no built-in rule has."""
    at = item.value["name"]
    if not isinstance(at.value, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", at.value):
        raise at.error(
            "name", f"{at.value!r:.40} is no identifier; give letters, digits and _, as kl_over_two"
        )
    if at.value in TAKEN:
        raise at.error("name", f"{at.value!r} is a built-in rule; choose another name")
    return at.value


def metric_of(at: At, label: str) -> str:
    """The reading's key; `kl` stands for `aggregate/kl`."""
    key = at.value if isinstance(at.value, str) else ""
    key = f"aggregate/{key}" if f"aggregate/{key}" in READINGS else key
    if key not in READINGS:
        raise at.error(label, unknown(at.value))
    if key in ("nonfinite/count", "silence/steps"):
        raise at.error(label, f"{key} is always watched, by built-in rules; remove this one")
    return key


def unknown(name: Any) -> str:
    """No such reading, and the closest there are."""
    short = {key.removeprefix("aggregate/"): key for key in READINGS}
    near = difflib.get_close_matches(str(name), [*short, *READINGS], n=6, cutoff=0.5)
    keys = list(dict.fromkeys(short.get(one, one) for one in near))[:3]
    offer = f"did you mean {' or '.join(keys)}?" if keys else "docs/metrics.md lists them all"
    return f"no reading is called {name!r:.60}; {offer}"


def slice_of(item: At, key: str) -> str:
    """The slice, which must be one where the reading can be."""
    at = item.value.get("slice", At("all", item.where, item.line))
    name, family = at.value, key.split("/")[0]
    if not isinstance(name, str) or not (name in _SLICES or name.startswith(_SLICE_KINDS)):
        raise at.error("slice", f"no slice is called {name!r:.60}; give all, text, post_tool, or one as post_tool/NAME, tool/NAME, tool/*")  # fmt: skip
    if "*" in name[:-1] or not name.split("/")[-1]:
        raise at.error("slice", f"{name!r:.60} is no slice; a * stands at the end only, as in tool/*")
    if family in ("aggregate", "joint") and name != "all":
        raise at.error("slice", f"{key} is a number of the whole step; use all")
    if family == "tail_ratio" and name != "post_tool":
        raise at.error("slice", f"{key} is measured in post_tool only; write slice: post_tool")
    if family == "reward_part" and not name.startswith("reward/"):
        raise at.error("slice", f"{key} is measured by reward part; write slice: reward/NAME or reward/*")
    return name
