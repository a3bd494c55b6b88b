"""Write docs/reference/metrics.md from the catalog: `python docs/make_metrics.py`. A test keeps the page equal to the table."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from trimtab.catalog import BOUNDS, LOG_RATIOS, READINGS, STATISTICS
from trimtab.catalog.definitions import UNCALIBRATED

PAGE = Path(__file__).parent / "reference" / "metrics.md"
BAD = {"up is bad": "up", "down is bad": "down", "neither": ""}
ELSEWHERE = ("aggregate/", "joint/")
MAIN, STAR = "; in all, text and post_tool", " *"


def page() -> str:
    """Return the page's text."""
    product = {f"{name}/{key}" for key, row in STATISTICS.items() for name in row.ratios}
    others = {
        key: row for key, row in READINGS.items() if key not in product and not key.startswith(ELSEWHERE)
    }
    joint = sorted(key for key in READINGS if key.startswith("joint/"))
    lines = [
        "# Readings and bounds",
        "",
        "Generated from `src/trimtab/catalog/` by `python docs/make_metrics.py`. `bad` is the direction that is bad. Where",
        f'no source is given it is "{UNCALIBRATED}".',
        "",
        "## Log-ratios",
        "",
        "A key is `<log-ratio>/<statistic>`, as `drift/p95`. `w` is the ratio; the logarithm is in nats.",
        "",
        *_table(("log-ratio", "w"), ((f"`{name}`", w) for name, w in LOG_RATIOS.items())),
        "",
        "mu is the engine that sampled, pi_old the trainer's engine at the same weights, pi_theta the policy now, pi_ref the",
        "frozen reference. A star: in the slices `all`, `text` and `post_tool` alone.",
        "",
        *_table(
            ("statistic", "what", "unit", "bad", *LOG_RATIOS, "source"),
            (
                (f"`{key}`", _of_any_ratio(row.what), row.unit, BAD[row.direction],
                 *("x" if name in row.ratios else "" for name in LOG_RATIOS), _source(row.source))
                for key, row in STATISTICS.items()
            ),
        ),
        "",
        "## Other readings",
        "",
        "A trainer's own numbers (`aggregate/<name>`) are in [metric keys](metric-keys.md). `joint/<family>` is the sum of a",
        f"family's standardised members over sqrt(k): {', '.join(f'`{key}`' for key in joint)}.",
        "",
        *_table(
            ("key", "what", "unit", "bad", "source"),
            ((f"`{key}`", row.what.replace(MAIN, STAR), row.unit, BAD[row.direction], _source(row.source)) for key, row in others.items()),
        ),
        "",
        "## Bounds",
        "",
        *_table(
            ("bound", "value", "unit", "derivation", "source"),
            ((f"`{key}`", f"{b.value:.6g}", b.unit, b.derivation, _source(b.source)) for key, b in BOUNDS.items()),
        ),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _of_any_ratio(what: str) -> str:
    short = what.replace(" of {name}", "").replace("{name}, ", "").replace(MAIN, STAR)
    return short.format(w="w")


def _source(text: str) -> str:
    return "" if text in (UNCALIBRATED, "-") else text


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [head, ("---",) * len(head), *rows]
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |" for cells in lines]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
