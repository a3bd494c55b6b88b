"""What a view shows at first sight: averages from step 1, alarms in order, no false silence, runs side by side."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

import trimtab
from tests.support import cli, make_batch, write_run
from trimtab.report.html.run_page import render_html, write_html
from trimtab.report.html.run_payload import build_payload
from trimtab.report.run_view import load_view

CHROMIUM = shutil.which("chromium")


def test_averages_are_shown_from_the_first_step(tmp_path):
    """Issue 17.7: `watch --once` printed dashes and the page "No average was reported yet"."""
    with trimtab.open_run(tmp_path / "run") as run:
        for step in range(2):  # too few tokens for any window
            run.observe(make_batch(np.random.default_rng(step), sequences=2, step=step))
            run.flush(step, {"reward": 0.625, "kl": 0.0375, "entropy": 1.25, "grad_norm": 0.5})
    assert json.loads(cli("diagnose", tmp_path / "run", "--json").stdout)["verdict"] == "not judged yet"
    assert "reward 0.625, kl 0.0375, entropy 1.25" in cli("diagnose", tmp_path / "run").stdout
    watched = cli("watch", tmp_path / "run", "--once").stdout
    assert all(re.search(number, watched) for number in (r"0\.62", r"0\.037|0\.038", r"1\.25"))
    (shown,) = build_payload([load_view(tmp_path / "run")])["runs"]
    curves = {line["name"]: line["value"] for line in shown["aggregates"]}
    assert curves["reward"] == [0.625, 0.625]
    assert list(curves)[:4] == ["reward", "kl", "entropy", "grad_norm"]


def test_a_reading_that_alarmed_in_one_run_is_drawn_for_all(tmp_path):
    """Issue 17.15: the calm run's chart said "Not judged yet: needs 600 tokens" of data that exist."""
    for name, onset in (("calm", 999), ("sick", 60)):
        with trimtab.open_run(tmp_path / name) as run:
            for step in range(100):
                failing = 0.02 + 0.01 * (step % 3) + 0.6 * (step >= onset)
                run.flush(step, {"reward": 0.5 + 0.01 * (step % 5), "tool_failure_frac": failing})
    runs = build_payload([load_view(tmp_path / "calm"), load_view(tmp_path / "sick")])["runs"]
    names = [[line["quantity"] for line in run["alarmed"]] for run in runs]
    assert names[0] == names[1] == ["tool_failure_frac in all"]
    assert len(runs[0]["alarmed"][0]["step"]) == 100


def test_alarms_come_by_severity_and_are_counted_with_the_notes(tmp_path):
    """Issue 17.16: "1 alarm" stood over a list of four, with [info] first and critical sixth."""
    folder = write_run(tmp_path / "run", steps=40, grow_from=25)
    result = json.loads(cli("diagnose", folder, "--json").stdout)
    severities = [alarm["severity"] for alarm in result["alarms"]]
    assert severities == sorted(severities, key=["critical", "warning", "info"].index)
    assert "info" in severities
    shown = re.findall(r"^  \[(\w+)\]", cli("diagnose", folder, "--verbose").stdout, re.MULTILINE)
    assert shown == [severity.replace("info", "note") for severity in severities]
    assert re.search(
        rf"{len(severities) - severities.count('info')} alarms? and {severities.count('info')} notes?, first",
        result["reason"],
    )
    (run,) = build_payload([load_view(folder)])["runs"]
    assert [alarm["severity"] for alarm in run["alarms"]] == severities


def test_a_run_that_finished_is_not_called_silent(tmp_path, monkeypatch):
    """Issue 17.16: "no new step for 30 min" of a run that ended well."""
    folder = write_run(tmp_path / "run", steps=3)
    later = time.time() + 1800
    monkeypatch.setattr(time, "time", lambda: later)
    text = cli("watch", folder, "--once").stdout
    assert "no new step" not in text


def test_one_rank_is_not_compared_with_others(tmp_path):
    """Issue 17.16: "rank 0 stopped at step None, others are at 0" of a run just opened, with one rank."""
    run = trimtab.open_run(tmp_path / "run")
    text = cli("diagnose", tmp_path / "run", "--verbose").stdout
    run.close()
    assert "None" not in text
    assert "NOT JUDGED YET: no step has been flushed." in text


def test_no_sentence_is_said_twice(tmp_path):
    """Issue 17.16: the verdict's reason stood in the headline and again below it."""
    folder = write_run(tmp_path / "run", steps=5)
    text = " ".join(cli("diagnose", folder, "--verbose").stdout.split())
    sentences = [part for part in re.split(r"[.;:]\s", text) if len(part) > 40]
    assert len(sentences) == len(set(sentences))


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_no_card_breaks_inside_a_word_at_500_pixels(tmp_path):
    """Issue 17.16: the words of a card broke after single letters on a narrow screen."""
    page = Path(
        write_html(
            build_payload([load_view(write_run(tmp_path / "run", steps=40, grow_from=25))]),
            tmp_path / "p.html",
        )
    )
    text = page.read_text()
    probe = (
        "<script>addEventListener('load',()=>{let bad=0;for(const e of document.querySelectorAll('.card *, .verdict *'))"
        "{if(e.children.length||!e.textContent.trim())continue;const r=document.createRange();const t=e.firstChild;"
        "if(!t||t.nodeType!==3)continue;for(const m of t.data.matchAll(/[A-Za-z]{2,14}/g)){r.setStart(t,m.index);"
        "r.setEnd(t,m.index+m[0].length);if(new Set([...r.getClientRects()].map(b=>Math.round(b.top))).size>1)bad++}}"
        "document.title='broken '+bad+' wide '+(document.documentElement.scrollWidth>innerWidth)})</script>"
    )
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text).replace(
        "</head>", probe + "</head>"
    )
    page.write_text(text)
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--window-size=500,900",
        "--virtual-time-budget=4000",
        "--dump-dom",
        f"file://{page}",
    ]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    assert re.search(r"<title>(.*?)</title>", dom)[1] == "broken 0 wide false"


def test_the_page_says_how_the_run_ended_first(tmp_path):
    folder = write_run(tmp_path / "run", steps=3)
    page = render_html(build_payload([load_view(folder)]))
    assert page.index("Run finished after step 2.") < page.index('id="alarms"')


def test_a_worst_token_has_its_context_and_near_copies_are_one_row(tmp_path):
    """Issue 17.15: worst tokens had no context, and near-identical rows filled the table."""
    rng = np.random.default_rng(0)
    ids = np.tile(np.arange(90) % 26, (64, 1))
    with trimtab.open_run(tmp_path / "run", token_text=lambda token: chr(97 + token)) as run:
        for step in range(3):
            batch = make_batch(rng, sequences=64, step=step, token_ids=ids)
            batch.ref_logprobs[(np.arange(64) * 90 + 60)] -= 9.0  # one token of every sequence: "i"
            run.observe(batch)
            run.flush(step)
    (shown,) = build_payload([load_view(tmp_path / "run")])["runs"]
    rows = [row for row in shown["exemplars"] if (row["slice"], row["ratio"]) == ("post_tool", "drift")]
    assert next((row["text"], row["before"], row["after"]) for row in rows) == ("i", "abcdefgh", "jklmnopq")
    assert sum(row["count"] for row in rows) == 4
    assert len(rows) <= 2  # one a tool
    assert "abcdefgh</bdi><b><bdi>i</bdi></b>" in render_html(build_payload([load_view(tmp_path / "run")]))
