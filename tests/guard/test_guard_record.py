"""What the guard did stands where a person looks: page, terminal, diagnosis; and a replay says what it would do."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.guard.test_guarded_run import actions_of, guarded
from tests.guard.troubled_run import Levers
from tests.report.page import Page
from tests.support import cli
from trimtab.report.html.run_page import render_html
from trimtab.report.html.run_payload import build_payload
from trimtab.report.run_view import load_view

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("record") / "run"
    guarded(folder, "stale", steps=36, guard="recommended", controls=Levers())
    return folder


@pytest.fixture(scope="module")
def page(run) -> Path:
    path = run.parent / "page.html"
    assert cli("report", run, "-o", path).returncode == 0
    return path


def test_diagnose_and_watch_name_the_last_action_in_a_line(run) -> None:
    line = f"guard: 1 action, last at step {actions_of(run)[0]['step']}: max_lag none -> 1 (stale rollouts)"
    assert line in cli("diagnose", run).stdout
    assert line in " ".join(cli("watch", "--once", run).stdout.split())
    summary = json.loads(cli("diagnose", run, "--json").stdout)
    assert [(one["text"], one["policy"]) for one in summary["actions"]] == [
        ("max_lag none -> 1", "bound_staleness")
    ]


def test_the_page_lists_actions_with_their_evidence(page) -> None:
    text = " ".join(" ".join(Page(page.read_text()).text).split())
    assert "What the guard did" in text
    assert "max_lag none -> 1" in text
    assert "the age of rollouts, in policy versions rose from 1 to 8" in text


def test_on_a_page_of_two_runs_an_action_has_one_label_in_the_table_and_on_charts(run) -> None:
    """page.js puts the letter of the run before the label, and so does the table."""
    text = render_html(build_payload([load_view(run), load_view(run)]))
    assert '<span class="g-flag">AG1</span>' in text
    assert '<span class="g-flag">BG1</span>' in text


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_the_browser_draws_them(run, page, tmp_path) -> None:
    flags = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--virtual-time-budget=3000",
    )
    command = [str(CHROMIUM), *flags, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    step = actions_of(run)[0]["step"]
    text = done.stdout.replace("&gt;", ">")
    assert f" Guard: step {step} max_lag none -> 1." in text  # the charts' text for who cannot see them


def test_a_replay_says_what_a_guard_would_have_done(run, tmp_path) -> None:
    """The run of the fixture was cured by its guard; this one was not watched."""
    alone = tmp_path / "alone"
    guarded(alone, "update", steps=36)
    done = cli("guard", "replay", alone, "--json")
    rows = json.loads(done.stdout)["actions"]
    assert done.returncode == 1
    assert [(row["action"], row["lever"], row["after"]) for row in rows] == [("set_lever", "lr_scale", 0.3)]
    live = tmp_path / "live"
    guarded(live, "update", steps=36, guard="observe")
    assert [row["step"] for row in rows] == [row["step"] for row in actions_of(live)]
    healthy = tmp_path / "healthy"
    guarded(healthy, "none", steps=30)
    assert cli("guard", "replay", healthy).returncode == 0
    bad = tmp_path / "p.yaml"
    bad.write_text("cool_dwon: 3\n")
    done = cli("guard", "replay", alone, "--policy", bad)
    assert done.returncode == 2
    assert (
        done.stderr.strip()
        == f"trimtab: {bad}:1: cool_dwon: unknown field of a guard; did you mean cool_down?"
    )
