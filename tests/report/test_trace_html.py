"""The page of agent logs: complete without a script, inert whatever the logs hold, and a viewer that works in a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.report.page import Page
from tests.report.test_trace_diagnosis import FIXTURE, HOSTILE, run
from tests.traces.make import chat, steps, write_lines
from trimtab.report.traces.shown_episodes import MAX_TEXT, chosen_ids, shown_episodes
from trimtab.report.traces.trace_diagnosis import diagnose_traces, trace_diagnosis
from trimtab.report.traces.trace_page import render_traces, write_traces_html

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
EVIL = f'</script><img src=x onerror="document.title=1">{HOSTILE}'


def hostile_log(tmp_path: Path) -> Path:
    rows = [
        {
            "id": f"{EVIL}{i}", "task_id": EVIL, "reward": i % 2, "stop_reason": EVIL,
            "messages": chat(name=EVIL, arguments=json.dumps({EVIL: EVIL}), result=f"Error: {EVIL}"),
        }
        for i in range(30)
    ]  # fmt: skip
    rows[0]["messages"][0]["content"] = "y" * 10_000_000
    path = write_lines(tmp_path / "h.jsonl", rows)
    with path.open("a", encoding="utf-8") as file:
        file.write("<script>bad line\n" * 20)
    return path


def page_of(path: Path) -> str:
    found = diagnose_traces([path])
    return render_traces(trace_diagnosis(found), shown_episodes(found))


def test_the_page_says_what_the_terminal_says():
    page = Page(page_of(FIXTURE))
    text = " ".join("".join(page.text).split())
    for words in (
        "Alarms",
        "many calls of this tool fail",
        "tool/book",
        "the sum does not add up",
        "24 of 24",
        "What was measured",
    ):
        assert words in text
    assert page.tags.count("script") == 2
    links = [value for name, value in page.attributes if name == "data-episode"]
    assert links
    assert not [
        value for name, value in page.attributes if name in ("href", "src") and not value.startswith("#")
    ]
    assert not re.findall(r"https?://", page_of(FIXTURE).replace("http://www.w3.org/2000/svg", ""))


def test_too_few_to_compare_is_not_nothing_found(tmp_path):
    """The page says it as the terminal does, and names of tools keep their capitals in its notes."""
    rows = [{"id": str(i), "reward": i % 2, "messages": chat(name="Bash")} for i in range(8)]
    path = write_lines(tmp_path / "few.jsonl", rows)
    text = " ".join("".join(Page(page_of(path)).text).split())
    assert "0 features could be compared" in text
    assert "No feature could be compared: too few of one kind, or the same in all." in text
    assert "could not be chance" not in text
    assert "Not judged alone, fewer than 20 calls: Bash" in text
    assert (
        "no feature could be compared: too few of one kind, or the same in all"
        in run("diagnose", path, "-v")[1]
    )


def test_the_policy_admits_exactly_the_embedded_script_and_style():
    page = Page(page_of(FIXTURE))
    policy = next(
        value for name, value in page.attributes if name == "content" and value.startswith("default-src")
    )
    for tag, raw in (("script", page.raw["script"][-1]), ("style", "".join(page.raw["style"]))):
        digest = base64.b64encode(hashlib.sha256(raw.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def test_hostile_text_is_inert_and_long_text_says_how_much_is_missing(tmp_path):
    text = page_of(hostile_log(tmp_path))
    page = Page(text)
    assert not set(page.tags) & {"img", "iframe", "object", "link"}
    assert page.tags.count("script") == 2
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert not set(text) & {"\x1b", "\u202e", "\0"}
    assert len(text) < 2_000_000
    episodes = json.loads(page.raw["script"][0])["episodes"]
    first = next(e for e in episodes if e["turns"][0]["text_more"])
    assert first["turns"][0]["text_more"] == 10_000_000 - MAX_TEXT


def test_named_episodes_come_first_and_room_is_bounded(tmp_path):
    rows = [
        {"id": str(i), "reward": i % 2, "messages": chat(result="Error: x" if i >= 290 else "ok")}
        for i in range(300)
    ]
    found = diagnose_traces([write_lines(tmp_path / "m.jsonl", rows)])
    chosen = chosen_ids(found, 20)
    assert len(chosen) == 20
    named = {e.episode for f in found.findings for e in f.measured.evidence}
    assert {name for name, is_named in chosen.items() if is_named} == named
    kinds = [int(name) % 2 for name, is_named in chosen.items() if not is_named]
    assert abs(sum(kinds) - len(kinds) / 2) <= 1


def test_a_log_read_by_columns_has_its_episodes_too(tmp_path):
    path = write_lines(
        tmp_path / "s.jsonl", [row for i in range(30) for row in steps(f"e{i}", reward=float(i % 2))]
    )
    found = diagnose_traces([path])
    shown = shown_episodes(found)
    assert [e["id"] for e in shown] == list(found.table.ids)
    assert shown[0]["turns"][1]["calls"][0]["result"] == "r0"
    assert "Failed" in render_traces(trace_diagnosis(found), shown)


def test_the_command_writes_the_page_and_refuses_what_it_cannot(tmp_path):
    output = tmp_path / "out.html"
    code, text = run("diagnose", FIXTURE, "--html", output)
    assert code == 1
    assert "ALARMS" in text
    assert output.read_text(encoding="utf-8").startswith("<!doctype html>")


@needs_chromium
@pytest.mark.parametrize("kind", ["fixture", "hostile"])
def test_a_browser_opens_the_viewer_and_runs_nothing_hostile(tmp_path, kind):
    path = FIXTURE if kind == "fixture" else hostile_log(tmp_path)
    output = write_traces_html(diagnose_traces([path]), tmp_path / "page.html")
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--virtual-time-budget=3000",
    ]
    command = [
        str(CHROMIUM),
        *flags,
        f"--user-data-dir={tmp_path / 'profile'}",
        "--dump-dom",
        output.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    number = 24 if kind == "fixture" else 30
    assert f'data-ready="{number}"' in done.stdout
    page = Page(done.stdout)
    assert page.tags.count("input") == 1
    assert ("class", "row") in page.attributes
    assert sum(name == "data-index" for name, _ in page.attributes) == number
    assert not set(page.tags) & {"img", "iframe", "object", "link"}
    assert page.tags.count("script") == 2
    assert "<title>1" not in done.stdout
