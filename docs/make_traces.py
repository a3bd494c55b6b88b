"""Renew the tables of docs/reference/agent-log-checks.md from the code: `python docs/make_traces.py`. A test keeps them equal."""

from __future__ import annotations

import re
from pathlib import Path

from trimtab.catalog import TRACE_BOUNDS, TRACE_READINGS
from trimtab.detect.traces.rules import TRACE_RULES
from trimtab.traces.registry import FORMATS

PAGE = Path(__file__).parent / "reference" / "agent-log-checks.md"


def formats() -> str:
    """One row a format."""
    rows = [f"| `{name}` | {format.what} |" for name, format in FORMATS.items()]
    return "\n".join(["| `--format` | what |", "|---|---|", *rows])


def checks() -> str:
    """One row a rule."""
    rows = []
    for rule in TRACE_RULES:
        limits = ", ".join("0" if name == "zero" else f"{TRACE_BOUNDS[name].value:g}" for name in rule.bounds)
        test = {
            "interval": f"lower end above {limits}",
            "value": f"above {limits}",
            "below": f"below {limits}",
            "zero": "equal to 0",
        }[rule.test]
        min_count = f"{TRACE_BOUNDS[rule.min_count].value:g} {TRACE_BOUNDS[rule.min_count].unit}"
        rows.append(
            f"| `{rule.name}` | {_cell(rule.what)} | {rule.severity} | `{rule.key}` | {test} | {min_count} | {_cell(rule.reference)} |"
        )
    return "\n".join(
        [
            "| rule | what | severity | reading | fires when it is | needs | source |",
            "|---|---|---|---|---|---|---|",
            *rows,
        ]
    )


def readings() -> str:
    """One row a reading that only agent logs have."""
    rows = [
        f"| `{key}` | {_cell(d.what)} | {d.unit} | {d.direction} | {_cell(d.source)} |"
        for key, d in TRACE_READINGS.items()
    ]
    return "\n".join(["| key | what | unit | direction | source |", "|---|---|---|---|---|", *rows])


def bounds() -> str:
    """One row a bound."""
    rows = [
        f"| `{name}` | {b.value:g} | {b.unit} | {_cell(b.derivation)} | {_cell(b.source)} |"
        for name, b in TRACE_BOUNDS.items()
    ]
    return "\n".join(["| bound | value | unit | derivation | source |", "|---|---|---|---|---|", *rows])


def page(text: str) -> str:
    """The page with its tables renewed."""
    for make in (formats, checks, readings, bounds):
        name = make.__name__
        begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
        text = re.sub(
            f"{begin}.*?{end}", lambda _, b=begin, e=end, m=make: f"{b}\n{m()}\n{e}", text, flags=re.S
        )
    return text


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
