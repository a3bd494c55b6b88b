"""Write docs/metrics.md from the catalog: `python docs/make_metrics.py`. A test keeps the page equal to the table."""

from __future__ import annotations

from pathlib import Path

from trimtab.catalog import BOUNDS, READINGS

PAGE = Path(__file__).with_name("metrics.md")


def page() -> str:
    """The page's text."""
    lines = [
        "# Readings and bounds",
        "",
        "Generated from `src/trimtab/catalog/` by `python docs/make_metrics.py`. A key is `<what>/<statistic>`; log quantities",
        "are in nats.",
        "",
        "| key | what | unit | direction | source |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| `{k}` | {_cell(d.what)} | {d.unit} | {d.direction} | {_cell(d.source)} |"
        for k, d in READINGS.items()
    ]
    lines += ["", "| bound | value | unit | derivation | source |", "|---|---|---|---|---|"]
    lines += [
        f"| `{k}` | {b.value:.6g} | {b.unit} | {_cell(b.derivation)} | {_cell(b.source)} |"
        for k, b in BOUNDS.items()
    ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
