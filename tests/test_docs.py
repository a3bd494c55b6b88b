"""The generated page is the catalog, and the README stays short and true."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from trimtab.detect.rules.registry import RULES, STREAM_RULES

ROOT = Path(__file__).parents[1]


def test_metrics_page_is_up_to_date():
    page = runpy.run_path(str(ROOT / "docs" / "make_metrics.py"))["page"]()
    assert (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8") == page, (
        "run python docs/make_metrics.py"
    )


def test_readme_is_short_and_names_the_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 120
    assert "make demo" in text
    assert "make test" in text
    assert "from trimtab.adapters.trl import watch" in text


def test_the_metric_key_table_is_up_to_date():
    made = runpy.run_path(str(ROOT / "docs" / "make_metric_keys.py"))["page"]
    text = (ROOT / "docs" / "metric-logs.md").read_text(encoding="utf-8")
    assert text == made(text), "run python docs/make_metric_keys.py"


def test_the_detectors_page_is_up_to_date_and_names_every_rule():
    made = runpy.run_path(str(ROOT / "docs" / "make_detectors.py"))["page"]
    text = (ROOT / "docs" / "detectors.md").read_text(encoding="utf-8")
    assert text == made(text), "run python docs/make_detectors.py"
    assert "<!-- begin: bench -->" in text
    missing = [rule for rule in (*(r.name for r in RULES), *STREAM_RULES) if f"`{rule}`" not in text]
    assert not missing
    pictures = re.findall(r"\(detectors/(\w+\.png)\)", text)
    assert pictures
    assert all((ROOT / "docs" / "detectors" / name).stat().st_size < 250_000 for name in pictures)


def test_the_page_of_agent_logs_is_up_to_date():
    made = runpy.run_path(str(ROOT / "docs" / "make_traces.py"))["page"]
    text = (ROOT / "docs" / "traces.md").read_text(encoding="utf-8")
    assert text == made(text), "run python docs/make_traces.py"
    assert "| `loops` | warning |" in text
    assert "| `swe-agent` |" in text
