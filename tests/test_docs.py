"""The generated page is the catalog, and the README stays short and true."""

from __future__ import annotations

import runpy
from pathlib import Path

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
