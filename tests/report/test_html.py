"""The HTML report is one escape_controls, self-contained page, whatever the run was called."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from tests.report.mock_payload import HOSTILE, empty_run, hostile, payload, two_arms, with_holes
from tests.report.page import Page
from trimtab import open_run
from trimtab.report.control_characters import escape_controls
from trimtab.report.html.run_page import render_html, write_html
from trimtab.report.html.run_payload import build_payload
from trimtab.report.run_view import load_view

TAGS = (
    "html head meta title style body main header p b h1 h2 h3 div article span bdi svg circle path dl dt "
    "dd code section a ul li noscript details summary sub table thead tbody tr th td footer pre script "
)
ATTRIBUTES = "lang charset http-equiv content name class id href title role type data-runs data-figures data-control data-table aria-labelledby aria-hidden viewbox cx cy r d "
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


@pytest.mark.parametrize("data", [two_arms(), payload(empty_run()), payload(), with_holes(), hostile()])
def test_page_holds_only_our_tags_and_refers_to_nothing_outside(data: dict[str, Any]) -> None:
    page = Page(render_html(data))
    assert set(page.tags) <= set(TAGS.split())
    assert {name for name, _ in page.attributes} <= set(ATTRIBUTES.split())
    assert page.tags.count("script") == 2
    assert all(value.startswith("#") for name, value in page.attributes if name in ("href", "src"))
    style = "".join(page.raw["style"])
    assert not re.search(r"url\(|@import", style)
    assert re.findall(r"https?://[^\s\"']*", render_html(data)) == [
        "https://github.com/leeoniya/uPlot"
    ]  # its banner comment


def test_policy_admits_exactly_the_embedded_script_and_style() -> None:
    page = Page(render_html(two_arms()))
    policy = next(
        value for name, value in page.attributes if name == "content" and value.startswith("default-src")
    )

    def digest(text: str) -> str:
        return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    script = page.raw["script"][-1]
    assert policy == (
        f"default-src 'none'; script-src '{digest(script)}'; style-src '{digest(''.join(page.raw['style']))}'; "
        "base-uri 'none'; form-action 'none'"
    )


def test_hostile_text_is_shown_and_obeyed_nowhere() -> None:
    text = render_html(hostile())
    page = Page(text)
    assert not any(name.startswith("on") or name == "style" for name, _ in page.attributes)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u2028\u2029\u202a-\u202e\u2066-\u2069]", text)
    assert escape_controls(HOSTILE) in "".join(page.text)
    assert "␛[31m\\u202e␀" in "".join(page.text)
    embedded = json.loads(page.raw["script"][0])
    assert embedded["runs"][0]["alarms"][0]["rule"].endswith(escape_controls(HOSTILE))
    assert embedded["runs"][1]["name"].startswith("{{payload}}")
    assert not re.search("[<>&]", page.raw["script"][0])


def test_what_is_not_finite_becomes_null_and_never_zero() -> None:
    data = with_holes()
    embedded = json.loads(Page(render_html(data)).raw["script"][0])
    values = embedded["runs"][0]["tail"][0]["value"]
    assert [i for i, value in enumerate(values) if value is None] == [10, 11, 12, 15, 17]
    assert values[0] == pytest.approx(data["runs"][0]["tail"][0]["value"][0], rel=1e-5)
    with pytest.raises(TypeError, match="JSON values only"):
        render_html({"title": "x", "runs": [{"name": object()}]})


def test_words_of_a_run_reach_the_page_without_a_script() -> None:
    words = " ".join(" ".join(Page(render_html(two_arms())).text).split())
    for expected in ("Alarms", "Healthy", "2 alarms (1 critical, 1 cleared)", "ALARMS since step 88: the tail grew", "Last good step: 87.", "Step 110", "since 88", "still open",
                     "cleared at step 186", "Constrain the policy", "no aggregate rule had fired; 4 of 15 could speak by then", "8,412,903", "310 ms", "1.2 %",
                     "the engine returned no log-probabilities", "1.9 % of step time"):  # fmt: skip
        assert expected in words
    assert "None was possible yet" in render_html(payload(empty_run()))
    assert "LinAlgError" in render_html(with_holes())
    blind = {**empty_run(), "verdict": "blind"}
    assert "Nothing was observed that a verdict could rest on" in render_html(payload(blind))


def test_a_reading_that_alarmed_and_has_no_chart_elsewhere_gets_one(tmp_path: Path) -> None:
    """Entropy has one anyway; tool failures and truncation have not. Without alarms there is no such section."""
    calm, sick = tmp_path / "calm", tmp_path / "sick"
    for folder, onset in ((calm, 999), (sick, 60)):
        with open_run(folder) as run:
            for step in range(100):
                late = step >= onset
                shares = {
                    "tool_failure_frac": 0.02 + 0.01 * (step % 3) + 0.6 * late,
                    "truncated_frac": 0.01 * (step % 4),
                }
                run.flush(
                    step,
                    {
                        "reward": 0.5 + 0.01 * (step % 5),
                        "entropy": 1.0 + 0.02 * (step % 3) + 3 * late,
                        **shares,
                    },
                )
    found = build_payload([load_view(sick)])
    (line,) = found["runs"][0]["alarmed"]
    assert (line["quantity"], len(line["step"]), max(line["value"])) == (
        "tool_failure_frac in all", 100, pytest.approx(0.64)
    )  # fmt: skip
    assert {"entropy_leap", "tool_failures_high"} <= {alarm["rule"] for alarm in found["runs"][0]["alarms"]}
    assert 'id="alarmed"' in render_html(found)
    assert 'id="alarmed"' not in render_html(build_payload([load_view(calm)]))


def test_page_stays_small_and_write_is_atomic(tmp_path: Path) -> None:
    path = write_html(two_arms(200), tmp_path / "report.html")
    assert 100_000 < path.stat().st_size < 300_000
    before = path.read_bytes()
    with pytest.raises(TypeError):
        write_html({"title": {1, 2}}, path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_assets_are_package_data_and_the_license_travels_with_the_page() -> None:
    folder = resources.files("trimtab.report").joinpath("assets")
    assert {"uPlot.iife.min.js", "uPlot.min.css", "uPlot.LICENSE", "charts.js", "page.js", "report.css"} <= {
        f.name for f in folder.iterdir()
    }
    assert "Leon Sorokin" in "".join(Page(render_html(payload())).text)


@needs_chromium
@pytest.mark.parametrize(
    ("data", "num_charts"),
    [(two_arms(60), 37), (payload(empty_run()), 0), (payload(), 0), (with_holes(), 18), (hostile(), 38)],
)
def test_browser_draws_every_chart_and_runs_nothing_hostile(
    data: dict[str, Any], num_charts: int, tmp_path: Path
) -> None:
    path = write_html(data, tmp_path / "page.html")
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--virtual-time-budget=3000",
    ]
    command = [str(CHROMIUM), *flags, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert f'data-ready="{num_charts}"' in done.stdout
    assert done.stdout.count("<canvas") == num_charts
    page = Page(done.stdout)
    assert not set(page.tags) & {"img", "iframe", "object", "link"}
    assert page.tags.count("script") == 2
    assert "<title>PWNED" not in done.stdout
