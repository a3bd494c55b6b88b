"""What must never look like "all clear": a damaged record, a blind monitor, numbers in the wrong shape, ranks that died."""

from __future__ import annotations

import gzip
import json
import logging

import numpy as np
import pytest

import trimtab
from tests.support import cli, make_batch, write_run
from trimtab.errors import RunError
from trimtab.report.run_view import load_view
from trimtab.runs import RunReader, compress_run


def verdict(folder):
    found = load_view(folder).verdict
    return found.word, found.reason


@pytest.mark.parametrize("damage", ["emptied", "deleted", "garbled"])
def test_a_lost_alarm_file_hides_no_alarm(tmp_path, damage):
    folder = write_run(tmp_path / "run", steps=40, grow_from=25)
    path = folder / "alarms.r0.s0.jsonl"
    if damage == "emptied":
        path.write_text("")
    elif damage == "deleted":
        path.unlink()
    else:
        path.write_text("X" + path.read_text())
    assert verdict(folder)[0] == "alarms"
    assert any(alarm.rule == "kl_leap" for alarm in load_view(folder).alarms)


def test_unreadable_lines_make_a_calm_run_blind(tmp_path):
    folder = write_run(tmp_path / "run", steps=40)
    assert verdict(folder)[0] == "healthy"
    with (folder / "readings.r0.s0.jsonl").open("a") as out:
        out.write("{}\n")
    assert verdict(folder) == ("blind", "1 line of the run folder cannot be read")


@pytest.mark.parametrize("kind", ["steps", "readings", "alarms", "errors", "tools", "states"])
@pytest.mark.parametrize("line", ["{}", '{"step": 1}', "[" * 5000])
def test_a_row_without_its_fields_is_one_line_and_never_a_traceback(tmp_path, kind, line):
    folder = write_run(tmp_path / "run", steps=3)
    with (folder / f"{kind}.r0.s0.jsonl").open("a") as out:
        out.write(line + "\n")
    done = cli("diagnose", folder)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "malformed lines skipped: 1" in done.stdout


@pytest.mark.parametrize(
    "header", ['{"trimtab_run": true, "config": {}}', '{"trimtab_run": 1, "config": null}', "[" * 5000]
)
def test_a_damaged_header_is_one_line(tmp_path, header):
    folder = write_run(tmp_path / "run", steps=1)
    (folder / "run.json").write_text(header)
    done = cli("diagnose", folder)
    assert (done.returncode, done.stderr.count("\n"), done.stdout) == (2, 1, "")


def test_a_run_whose_tokens_stop_alarms(tmp_path):
    rng = np.random.default_rng(0)
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        for step in range(40):
            batch = make_batch(rng, sequences=64, step=step)
            if step >= 20:
                batch = make_batch(rng, sequences=64, step=step, loss_mask=np.zeros((64, 90), bool))
            run.observe(batch)
            run.flush(step, {"reward": 1.0})
    assert any(a.rule == "column_silent" and a.slice == "logprobs" for a in run.alarms)


def test_a_monitor_that_fails_at_half_of_the_steps_is_blind(tmp_path):
    rng = np.random.default_rng(0)
    with trimtab.open_run(tmp_path / "run") as run:
        for step in range(41):
            mask = {"loss_mask": np.full((64, 90), 2)} if step % 2 else {}
            if mask:
                run.observe(**mask, logprobs=np.zeros((64, 90)))
            else:
                run.observe(make_batch(rng, sequences=64, step=step))
            run.flush(step, {"reward": float(rng.random())})
    word, reason = verdict(tmp_path / "run")
    assert (word, "20 of 41 steps" in reason) == ("blind", True)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.array, lambda x: np.array([x])])
def test_metrics_of_any_number_type_are_judged(tmp_path, kind):
    rng = np.random.default_rng(0)
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        for step in range(30):
            run.observe(make_batch(rng, sequences=64, step=step))
            run.flush(
                step, {"reward": kind(1.0), "grad_norm": kind(np.nan if step > 20 else 1.0), "note": "x"}
            )
    assert any(a.rule == "nonfinite" and a.slice == "metrics/grad_norm" for a in run.alarms)
    assert "aggregate/reward" in {r.key for r in load_view(tmp_path / "run").readings}


def test_an_unknown_reward_name_is_said(tmp_path):
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        run.observe(make_batch(np.random.default_rng(0), reward=None))
        run.flush(0, {"my_score": 1.0})
    assert "no metric named reward" in load_view(tmp_path / "run").not_observed["reward"]


def test_flush_after_close_is_counted_and_never_raised(tmp_path, caplog):
    with trimtab.open_run(tmp_path / "run") as run:
        run.flush(0)
    with caplog.at_level(logging.ERROR):
        run.flush(1)
    assert run.num_failures > 0
    assert "is closed" in caplog.text


def test_a_missing_and_a_silent_rank_are_blind(tmp_path):
    for rank in range(2):
        rng = np.random.default_rng(rank)
        with trimtab.open_run(tmp_path / "run", rank=rank, config={"ranks": 4}) as run:
            for step in range(60 if rank == 0 else 12):
                run.observe(make_batch(rng, sequences=64, step=step))
                run.flush(step, {"reward": float(rng.random())})
    word, reason = verdict(tmp_path / "run")
    assert word == "blind"
    assert "2 of 4 ranks have written nothing" in reason
    assert "rank 1 stopped at step 11, others are at 59" in reason


def test_drift_of_zero_everywhere_is_blind(tmp_path):
    rng = np.random.default_rng(0)
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        for step in range(20):
            made = make_batch(rng, sequences=64, step=step, text_scale=0.0, post_scale=0.0)
            run.observe(made)
            run.flush(step, {"reward": float(rng.random())})
    word, reason = verdict(tmp_path / "run")
    assert (word, "exactly zero" in reason) == ("blind", True)


def test_drift_that_can_never_be_observed_is_blind_and_says_why(tmp_path):
    rng = np.random.default_rng(0)
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        for step in range(20):
            run.observe(make_batch(rng, sequences=64, step=step, ref_logprobs=None, mismatch=0.01))
            run.flush(step, {"reward": float(rng.random())}, absent={"drift": "weights are sharded"})
    assert verdict(tmp_path / "run") == (
        "blind",
        "drift is never observed, and the tail rules rest on it: weights are sharded",
    )


def test_a_healthy_verdict_names_what_no_rule_watches(tmp_path):
    rng = np.random.default_rng(0)
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        for step in range(40):
            run.observe(make_batch(rng, sequences=64, step=step, mismatch=0.01))
            run.flush(step, {"reward": 0.5 + 0.1 * float(rng.random())})
    word, reason = verdict(tmp_path / "run")
    assert word == "healthy"
    assert "watched by no rule so far" in reason
    assert "total" in reason


def test_starting_over_in_a_used_folder_warns_and_the_views_say_it(tmp_path, caplog):
    folder = write_run(tmp_path / "run", steps=12)
    with caplog.at_level(logging.WARNING), trimtab.open_run(folder) as run:
        run.flush(0)
    assert "steps 0 to 11 stay on disk but no view shows them" in caplog.text
    assert RunReader(folder).num_superseded == 12
    assert "steps started over by a later session, not shown: 12" in cli("diagnose", folder).stdout


def test_json_is_strict_and_the_usual_options_exist(tmp_path):
    folder = write_run(tmp_path / "run", steps=3)

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    json.loads(cli("diagnose", folder, "--json").stdout, parse_constant=refuse)
    assert cli("--version").stdout.strip() == trimtab.__version__
    assert cli("-h").returncode == 0


def test_the_prompt_before_the_first_own_token_is_not_a_tool_result():
    mask = np.array([[False, False, True, True], [False, True, False, True]])
    batch = trimtab.token_batch(mask, logprobs=np.full((2, 4), -1.0))
    assert batch.phase[batch.loss_mask].tolist() == [0, 0, 0, 1]


def test_tools_without_a_table_get_slices_of_their_own_and_a_plain_string_is_refused(tmp_path):
    mask = np.array([[True, False, True]] * 2)
    with trimtab.open_run(tmp_path / "run") as run:
        run.observe(loss_mask=mask, logprobs=np.full((2, 3), -1.0), tools=[["calc"], ["search"]])
        run.flush(0)
        assert {"post_tool/calc", "post_tool/search"} <= set(load_view(tmp_path / "run").slices)
        run.observe(loss_mask=mask, logprobs=np.full((2, 3), -1.0), tools=["calc", "search"])
        assert run.num_failures == 1


def test_a_sealed_run_reads_the_same_and_can_be_resumed(tmp_path):
    folder = write_run(tmp_path / "run", steps=40, grow_from=25)
    plain = load_view(folder)
    assert compress_run(folder) > 0
    assert not list(folder.glob("*.jsonl"))
    packed = load_view(folder)
    assert [a.step for a in packed.alarms] == [a.step for a in plain.alarms]
    assert list(map(repr, packed.readings)) == list(map(repr, plain.readings))
    assert compress_run(folder) == 0
    with trimtab.open_run(folder) as run:
        run.flush(40)
    assert RunReader(folder).last_step(0) == 40
    path = next(folder.glob("readings*.gz"))
    path.write_bytes(gzip.compress(b"")[:-4])
    with pytest.raises(RunError, match="cannot be read"):
        load_view(folder)
