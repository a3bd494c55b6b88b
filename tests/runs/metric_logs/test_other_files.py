"""No other file's data is read, and no record is overwritten (issue 17.12)."""

from __future__ import annotations

import json

import duckdb
import pytest
from typer.testing import CliRunner

from trimtab import cli
from trimtab.errors import TrimtabError
from trimtab.metric_logs import read_metric_log
from trimtab.traces.read import read_episodes

NAMES = ["[ab].parquet", "[lr=1e-4].parquet", "a?b.parquet", "*.parquet", "[!x].parquet"]


def _parquet(path, select):
    path.parent.mkdir(exist_ok=True)
    plain = path.parent / "plain.tmp"
    duckdb.sql(f"copy ({select}) to '{plain}' (format parquet)")
    plain.rename(path)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("folder", ["logs", "[ab]"])
def test_a_name_with_a_globs_marks_is_that_file(tmp_path, name, folder):
    """Issue 17.12: `[ab].parquet` read `a.parquet`; Hydra writes such names of folders, too."""
    for other in ("a.parquet", "b.parquet", "l.parquet", "axb.parquet"):
        _parquet(
            tmp_path / folder / other, "select 1 as step, 9.0 as reward, 'other' as prompt, 'x' as completion"
        )
    _parquet(tmp_path / folder / name, "select 1 as step, 0.5 as reward, 'mine' as prompt, 'x' as completion")
    log = read_metric_log(tmp_path / folder / name)
    assert [list(values.values()) for _, values in log.rows] == [[0.5]]
    episodes, _ = read_episodes(
        [tmp_path / folder / name], mapping={"prompt": "prompt", "completion": "completion"}
    )
    assert [episode.turns[0].content for episode in episodes] == ["mine"]


def _run(folder):
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"trimtab_run": 1, "config": {}}))
    (folder / "steps.r0.s0.jsonl").write_text("")
    return folder


@pytest.mark.parametrize("name", ["steps.r0.s0.jsonl", "run.json", "probes.r0.npz", "notes.txt"])
def test_no_output_replaces_a_file_of_a_run_folder(tmp_path, name):
    """Issue 17.12: `trimtab report r -o r/steps.r0.s0.jsonl` overwrote the record without a word."""
    run = _run(tmp_path / "r")
    (run / "notes.txt").write_text("mine")
    log = tmp_path / "log.jsonl"
    rows = [
        {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "reward": 1.0}
    ] * 3
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    (tmp_path / "link").symlink_to(run)
    for command in (
        ["report", run, "-o", run / name],
        ["report", run, "-o", tmp_path / "link" / name],
        ["traces", "diagnose", log, "--html", run / name],
        ["traces", "export", log, "--to", "sft", "-o", run / name],
        ["traces", "convert", log, "-o", run / name],
    ):
        ran = CliRunner().invoke(cli.app, list(map(str, command)))
        assert isinstance(ran.exception, TrimtabError), (command, ran.output)
        assert "is a file of the run folder" in str(ran.exception)
        assert "\n" not in str(ran.exception)
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_a_page_in_a_run_folder_may_be_written_again(tmp_path):
    """Issue 17.12: what is refused is the record, not the page beside it."""
    run = _run(tmp_path / "r")
    for _ in range(2):
        ran = CliRunner().invoke(cli.app, ["report", str(run), "-o", str(run / "report.html")])
        assert ran.exit_code == 0, ran.output
