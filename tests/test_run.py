"""The loop API end to end: a run on disk, its verdict and exit code, resume, ranks, and what must never look healthy."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import replace

import numpy as np
import pytest

import trimtab
from tests.support import cli, finished, make_batch, write_run
from trimtab.adapters.trl.metrics_only import reasons_of
from trimtab.report.html.run_page import render_html
from trimtab.report.html.run_payload import build_payload
from trimtab.report.run_diagnosis import diagnosis, diagnosis_lines
from trimtab.report.run_view import load_view


def test_a_calm_run_is_healthy_and_exits_0(tmp_path):
    done = cli("diagnose", write_run(tmp_path / "run", steps=40), "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["verdict"], found["alarms"]) == (0, "healthy", [])
    text = next(row for row in found["slices"] if row["slice"] == "text")["latest"]["drift/p99"]
    assert text["value"] == pytest.approx(0.02 * 2.576, rel=0.1)  # half-normal, scale 0.02
    post = next(row for row in found["slices"] if row["slice"] == "post_tool")["latest"]["drift/p99"]
    assert post["value"] == pytest.approx(0.05 * 2.576, rel=0.1)


def test_a_healthy_run_names_the_rules_that_still_collect_their_baselines(tmp_path):
    """Forty steps are enough for few rules: the silence of the others is no calm."""
    folder = write_run(tmp_path / "run", steps=40)
    found = json.loads(cli("diagnose", folder, "--json").stdout)
    assert found["pending"]["kl_break"] == 40
    assert found["pending"]["outcome_together"] == 40
    assert not set(found["pending"]) & set(found["judged"])
    assert f"{len(found['pending'])} rules still collect their baselines" in found["headline"]
    listed = (
        cli("diagnose", folder, "--verbose")
        .stdout.split("still collect their baselines: ")[1]
        .splitlines()[0]
    )
    assert set(re.findall(r"[a-z_]+(?=[,; ])", listed)) >= set(found["pending"])
    page = render_html(build_payload([load_view(folder)]))
    assert f"{len(found['pending'])} rules without a full baseline" in page
    assert "kl_break (40 values)" in page
    short = cli("diagnose", write_run(tmp_path / "short", steps=5)).stdout
    assert re.search(r"\d\d rules still\s+collect their\s+baselines \(kl_surge 5 values", short)
    assert len(re.findall(r"\w+_\w+ 5\b", short)) == 3  # names of rules


def test_rollouts_that_fall_behind_after_a_tool_are_a_hidden_alarm_and_exit_1(tmp_path):
    """Averages can only hide what is rare: 12 % of the tokens, beside a text slice that carries the mean KL."""
    shape = {"sequences": 256, "text": 60, "post": 8, "text_scale": 0.1, "stale": 2.0}
    done = cli("diagnose", write_run(tmp_path / "run", steps=40, grow_from=25, shape=shape), "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 1
    told = {(alarm["rule"], alarm["slice"]): alarm for alarm in found["alarms"]}
    alarm = told["total_high", "post_tool"]
    assert ("total_high", "text") not in told
    assert (alarm["severity"], alarm["hidden"]) == ("warning", True)
    ready, known = re.search(
        r"no aggregate rule had fired; (\d+) of (\d+) could speak by then", alarm["averages"]
    ).groups()
    assert 0 < int(ready) < int(known)  # forty steps: the slow rules still collect their baselines
    assert 26 <= alarm["since"] <= alarm["step"] <= 38


def test_drift_alone_that_grows_after_a_tool_is_a_note(tmp_path):
    """It grows in every open run that learns, and in runs that live."""
    shape = {"sequences": 256, "text": 60, "post": 8, "text_scale": 0.1}
    view = load_view(write_run(tmp_path / "run", steps=40, grow_from=25, shape=shape))
    severities = {alarm.rule: alarm.severity for alarm in view.alarms}
    assert severities["post_tool_tail_growth"] == "info"
    assert set(severities.values()) == {"info"}
    assert view.verdict.word != "alarms"


def test_growth_that_the_averages_show_is_not_called_hidden(tmp_path):
    view = load_view(
        write_run(tmp_path / "run", steps=40, grow_from=25, growth=1.4, shape={"stale": 1.0})
    )  # half of the tokens, and all of the KL
    rules = {alarm.rule: alarm for alarm in view.alarms}
    assert "kl_leap" in rules
    assert rules["total_high"].severity == "warning"
    assert not rules["total_high"].hidden


def test_the_text_form_says_the_same(tmp_path):
    folder = write_run(tmp_path / "run", steps=40, grow_from=25)
    done = finished([sys.executable, "-m", "trimtab", "diagnose", str(folder)])
    inside = cli("diagnose", folder)
    # the age's digits decide how much of the path there is room for
    outputs = [re.sub(r".* last written \d+ \w+ ago.*", "", result.stdout) for result in (inside, done)]
    assert outputs[0] == outputs[1]
    assert (inside.returncode, inside.stderr) == (done.returncode, done.stderr) == (1, "")
    assert "ALARMS" in done.stdout
    assert "kl_leap: mean KL" in done.stdout
    assert "Traceback" not in done.stderr


def test_the_evidence_begins_with_the_window_that_broke_and_the_last_good_step_lies_before_it(tmp_path):
    """A window of several steps closes at its last one; the change may have begun at its first."""
    shape = {"sequences": 12, "text": 30, "post": 30}
    view = load_view(write_run(tmp_path / "run", steps=170, grow_from=120, growth=1.2, shape=shape))
    closed = {r.window.first: r.window.last for r in view.series("drift/p95", "all")}
    assert {last - first for first, last in closed.items()} == {4}
    live = {(r["rule"], r["fired"]): r["since"] for r in view.reader.rows("alarms") if r["event"] == "fired"}
    assert {(a.rule, a.step): a.since for a in view.pipeline.alarms} == live
    assert {rule for rule, _ in live} >= {"kl_leap", "kl_surge", "post_tool_tail_growth"}
    firsts = {
        r.window.first
        for r in [*view.series("aggregate/kl", "all"), *view.series("tail_ratio/p95", "post_tool")]
    }
    assert set(live.values()) <= firsts
    found, began = diagnosis(view), {a.rule: a.since for a in view.alarms if a.severity != "info"}
    assert f"since step {began['kl_surge']}: mean KL" in found["headline"]  # the worst one leads
    assert found["headline"].endswith(f"Last good step: {min(began.values()) - 1}.")


def test_small_steps_wait_for_the_tokens_of_four_windows_however_long_a_stored_block_is(tmp_path):
    """Blocks grow with the run's age; at step 100,000 readings came every 320 steps."""
    shape = {"sequences": 12, "text": 30, "post": 30}  # 840 tokens a step
    view = load_view(write_run(tmp_path / "run", steps=60, shape=shape, state_every=320))
    assert {r.window.last - r.window.first + 1 for r in view.series("drift/p95", "all")} == {10}


def test_no_rule_on_a_tail_index_speaks_of_weights_that_are_1_within_rounding(tmp_path):
    """Engines that differ by 1e-6, now and then by 1e-4: their tail is heavy, and nothing rests on it."""
    for tiny in (True, False):
        rng = np.random.default_rng(3)
        with trimtab.open_run(tmp_path / f"{tiny}", strict=True) as run:
            for step in range(30):
                batch = make_batch(rng, sequences=64, step=step)
                tail = rng.pareto(1.0, batch.num_tokens)
                noise = -(np.minimum(1e-6 * tail, 9e-4) if tiny else np.log1p(tail))
                old = np.minimum(batch.logprobs.astype(float), -0.6)
                run.observe(replace(batch, old_logprobs=old, rollout_logprobs=old + noise))
                run.flush(step)
        view = load_view(tmp_path / f"{tiny}")
        assert ("khat_high" in view.pipeline.judged()) != tiny
        assert {math.isnan(r.value) for r in view.series("mismatch/khat", "all")} == {tiny}


def test_a_short_run_is_not_judged_yet_and_never_fine(tmp_path):
    done = cli("diagnose", write_run(tmp_path / "run", steps=5), "--json")
    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (2, "not judged yet")


def test_a_trainer_that_logs_a_reward_is_not_said_to_lack_it(tmp_path):
    """TRL's RewardTrainer: its reward was shown, and listed as not observed."""
    trainer = type("RewardTrainer", (), {})()
    with trimtab.open_run(tmp_path / "run") as run:
        for step in range(60):
            run.flush(step, {"mean_reward": 0.5 + step % 3 / 10, "loss": 0.6}, absent=reasons_of(trainer))
    found = json.loads(cli("diagnose", tmp_path / "run", "--json").stdout)
    assert found["averages"]["reward"]["value"] == pytest.approx(0.7)
    assert "reward" not in found["not_observed"]
    assert "RewardTrainer trains a score" in found["not_observed"]["tokens"]


def test_no_ratio_is_blind(tmp_path):
    with trimtab.open_run(tmp_path / "run") as run:
        for step in range(20):
            run.observe(make_batch(np.random.default_rng(step), ref_logprobs=None))
            run.flush(step, {"reward": 1.0})
    done = cli("diagnose", tmp_path / "run", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["verdict"]) == (2, "blind")
    assert "ref_logprobs" in found["not_observed"]["drift"]


@pytest.mark.parametrize("column", ["logprobs", "ref_logprobs", "entropy", "advantages"])
def test_one_nan_is_a_critical_alarm_of_its_own(tmp_path, column):
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        for step in range(20):
            batch = make_batch(np.random.default_rng(step), sequences=64, step=step)
            if step == 12:
                getattr(batch, column)[3] = math.nan
            fired = run.flush(step) if run.observe(batch) is None else []
            assert [(a.rule, a.slice) for a in fired] == ([("nonfinite", column)] if step == 12 else [])
    view = load_view(tmp_path / "run")
    assert view.verdict.word == "unhealthy"
    assert view.series("drift/p99", "post_tool")[-1].window.last > 12  # measuring goes on


def test_a_nan_metric_alarms(tmp_path):
    with trimtab.open_run(tmp_path / "run") as run:
        run.observe(make_batch(np.random.default_rng(0)))
        fired = run.flush(0, {"loss": math.nan})
    assert [(a.rule, a.slice) for a in fired] == [("nonfinite", "metrics/loss")]


def test_a_column_that_stops_arriving_alarms(tmp_path):
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        fired = []
        for step in range(30):
            changes = {"ref_logprobs": None} if step >= 15 else {}
            run.observe(make_batch(np.random.default_rng(step), sequences=64, step=step, **changes))
            fired += run.flush(step)
    assert [(a.rule, a.slice, a.since) for a in fired] == [("column_silent", "ref_logprobs", 15)]
    assert load_view(tmp_path / "run").verdict.word == "alarms"


@pytest.mark.parametrize(
    "arrays",
    [
        {"loss_mask": np.ones((2, 3), bool), "logprobs": np.zeros((2, 4))},
        {"loss_mask": np.full((2, 3), 0.5), "logprobs": np.zeros((2, 3))},
        {"loss_mask": np.ones((2, 3), bool), "logprobs": np.ones((2, 3))},
        {"loss_mask": np.ones((2, 3), bool), "colour": np.ones((2, 3))},
    ],
    ids=["shapes", "mask", "positive", "unknown"],
)
def test_bad_arrays_never_stop_training_and_never_look_healthy(tmp_path, arrays, caplog):
    with trimtab.open_run(tmp_path / "run") as run:
        run.observe(**arrays)
        run.flush(0, {"reward": 1.0})
    assert "trimtab could not observe" in caplog.text
    view = load_view(tmp_path / "run")
    assert view.verdict.word == "blind"
    assert view.errors[0]["error"].startswith("BatchError")
    with trimtab.open_run(tmp_path / "strict", strict=True) as run, pytest.raises(trimtab.BatchError):
        run.observe(**arrays)


def test_a_resume_continues_windows_detectors_and_verdict(tmp_path):
    whole = write_run(tmp_path / "whole", steps=40, grow_from=25)
    rng = np.random.default_rng(0)
    parts = tmp_path / "parts"
    for steps in (range(20), range(20, 40)):
        with trimtab.open_run(parts, strict=True) as run:
            for step in steps:
                factor = 1.3 ** max(0, step - 25)
                run.observe(make_batch(rng, step=step, sequences=64, post_scale=0.05 * factor))
                run.flush(
                    step,
                    {
                        "reward": 0.5 + 0.01 * rng.normal(),
                        "grad_norm": 1.0 + 0.05 * rng.normal(),
                        "loss": rng.normal(),
                    },
                )
    one, two = load_view(whole), load_view(parts)
    assert (
        [(a.rule, a.step, a.since) for a in one.alarms]
        == [(a.rule, a.step, a.since) for a in two.alarms]
        != []
    )
    assert one.verdict.word == two.verdict.word
    assert two.reader.num_sessions == 2


def test_two_ranks_merge_to_what_one_would_have_seen(tmp_path):
    def split(batch, half):
        rows = slice(0, 32) if half == 0 else slice(32, 64)
        cut = int(batch.lengths[:32].sum())
        part = slice(0, cut) if half == 0 else slice(cut, None)
        return trimtab.token_batch(
            batch.loss_mask[part], lengths=batch.lengths[rows], tool_tokens=~batch.loss_mask[part],
            **{c: getattr(batch, c)[part] for c in ("logprobs", "ref_logprobs", "advantages", "entropy")},
            reward=batch.reward[rows], episode_id=batch.episode_id[rows], reference=batch.reference,
        )  # fmt: skip

    one = trimtab.open_run(tmp_path / "one", strict=True, state_every=1)
    ranks = [trimtab.open_run(tmp_path / "two", rank=rank, strict=True, state_every=1) for rank in (0, 1)]
    for step in range(30):
        scale = 0.05 * 1.3 ** max(0, step - 18)
        batch = make_batch(np.random.default_rng(step), sequences=64, step=step, post_scale=scale)
        one.observe(trimtab.token_batch(
            batch.loss_mask, lengths=batch.lengths, tool_tokens=~batch.loss_mask,
            **{c: getattr(batch, c) for c in ("logprobs", "ref_logprobs", "advantages", "entropy")},
            reward=batch.reward, episode_id=batch.episode_id, reference=batch.reference,
        ))  # fmt: skip
        one.flush(step, {"grad_norm": 1.0})
        for half, run in enumerate(ranks):
            run.observe(split(batch, half))
            run.flush(step, {"grad_norm": 1.0})
    for run in (one, *ranks):
        run.close()
    single, merged = load_view(tmp_path / "one"), load_view(tmp_path / "two")
    assert merged.reader.ranks == [0, 1]
    keys = {(r.key, r.slice, r.window): r for r in single.readings}
    assert {(r.key, r.slice, r.window) for r in merged.readings} == set(keys)
    for reading in merged.readings:
        other = keys[reading.key, reading.slice, reading.window]
        tolerance = 0.15 if "khat" in reading.key else 1e-5
        assert reading.value == pytest.approx(other.value, rel=tolerance, abs=tolerance, nan_ok=True), (
            reading.key
        )
        assert reading.n_tokens == other.n_tokens
    assert [(a.rule, a.step) for a in merged.alarms] == [(a.rule, a.step) for a in single.alarms] != []


def test_recorded_readings_equal_those_remade_from_states(tmp_path):
    view = load_view(write_run(tmp_path / "run", steps=20, state_every=1))
    remade = {(r.key, r.slice, r.window): r for r in view._merged_readings()}
    assert len(remade) == len(list(view.readings))
    for reading in view.readings:
        assert remade[reading.key, reading.slice, reading.window].value == pytest.approx(
            reading.value, rel=1e-5, abs=1e-6, nan_ok=True
        )


def test_steps_must_increase(tmp_path):
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        run.flush(5)
        with pytest.raises(trimtab.RunError, match="must increase"):
            run.flush(5)


def test_begin_again_opens_a_new_session(tmp_path):
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        for step in (1, 2, 3):
            run.flush(step)
        run.begin(2)
        run.flush(2)
    assert [row["step"] for row in load_view(tmp_path / "run").steps] == [1, 2]


@pytest.mark.parametrize("command", ["diagnose", "report", "watch"])
def test_bad_folders_are_one_line_and_exit_2(tmp_path, command):
    future = tmp_path / "future"
    future.mkdir()
    (future / "run.json").write_text('{"trimtab_run": 7}')
    for folder, word in ((tmp_path / "none", "does not exist"), (tmp_path, "run.json"), (future, "upgrade")):
        done = cli(command, folder)
        assert done.returncode == 2
        assert done.stderr.startswith("trimtab: ")
        assert len(done.stderr.strip().splitlines()) == 1
        assert word in done.stderr


def test_the_cost_of_watching_is_in_the_run(tmp_path):
    rows = load_view(write_run(tmp_path / "run", steps=5)).steps
    assert all(row["costs_s"]["watch"] > 0 for row in rows)
    assert rows[-1]["duration_s"] == 1.0


def test_payload_is_plain_json_and_complete(tmp_path):
    view = load_view(write_run(tmp_path / "run", steps=40, grow_from=25))
    run = json.loads(json.dumps(build_payload([view])))["runs"][0]
    assert run["verdict"] == "alarms"
    tail = {(line["slice"], line["quantity"]): line for line in run["tail"]}
    assert len(tail["post_tool", "drift p99"]["value"]) >= 35
    windows = {(c["slice"], c["window"]): c for c in run["cdf"]}
    assert {w for _, w in windows} == {"early", "middle", "late"}
    assert windows["post_tool", "late"]["y"][-1] == pytest.approx(1.0)
    assert windows["post_tool", "late"]["x"][-1] > 3 * windows["post_tool", "early"]["x"][-1]
    assert {line["quantity"] for line in run["weights"]} >= {"concentration (drift)"}
    assert {line["name"] for line in run["aggregates"]} >= {"reward", "kl", "entropy", "grad_norm", "alpha"}
    assert run["tools"][0]["tool"] == "search"
    assert run["tools"][0]["error_frac"] == pytest.approx(0.2)


def test_hostile_names_are_inert_in_the_diagnosis(tmp_path):
    with trimtab.open_run(tmp_path / "run") as run:
        run.observe(make_batch(np.random.default_rng(0), reference="\x1b[31mred\u202e"))
        run.tool_call(trimtab.ToolCall("\x1b[2J<script>", {}, 1, "\u202e", 0.1))
        run.flush(0, absent={"\x1b[31m": "\u202eevil"})
    text = "\n".join(diagnosis_lines(diagnosis(load_view(tmp_path / "run"))))
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_a_flush_that_fails_is_in_the_run_and_the_verdict(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "run", steps=40)
    assert load_view(folder).verdict.word == "healthy"
    run = trimtab.open_run(folder)
    monkeypatch.setattr("trimtab.monitor.detection.reading_rows", lambda *_: 1 / 0)
    run.observe(make_batch(np.random.default_rng(0)))
    run.flush(40)
    view = load_view(folder)
    assert view.steps[-1]["step"] == 40
    assert view.verdict.word == "blind"
    assert "ZeroDivisionError" in view.errors[-1]["error"]


@pytest.mark.parametrize("name", ["my_thing", "custom/loss2", "rewards/correct"])
def test_a_nan_of_a_name_nobody_knows_alarms_too(tmp_path, name):
    with trimtab.open_run(tmp_path / "run") as run:
        for step in range(8):
            run.observe(make_batch(np.random.default_rng(step), step=step))
            fired = run.flush(step, {"reward": 0.5, name: math.nan if step == 5 else 1.0})
            assert [(a.rule, a.slice) for a in fired] == (
                [("nonfinite", f"metrics/{name}")] if step == 5 else []
            )


def test_an_alarm_that_goes_on_is_recorded_once_and_shown_as_open(tmp_path):
    """Cleared when the short windows have got used to it, opened again by the longer ones: the file says both, the reader the last."""
    rng = np.random.default_rng(9)
    values = 0.05 * np.exp(0.25 * rng.normal(size=300))
    values[200:] *= 2.0
    with trimtab.open_run(tmp_path / "run") as run:
        for step, value in enumerate(values.tolist()):
            run.flush(step, {"grad_norm": value})
        live = [alarm for alarm in run.alarms if alarm.rule == "grad_norm_growth"]
    rows = [
        json.loads(line)
        for path in (tmp_path / "run").glob("alarms.*")
        for line in path.read_text().splitlines()
    ]
    mine = [row for row in rows if row["rule"] == "grad_norm_growth"]
    assert [row["event"] for row in mine][:3] == ["fired", "cleared", "reopened"]
    assert {row["fired"] for row in mine} == {live[0].step}
    assert [(a.step, a.cleared) for a in live] == [
        (a.step, a.cleared) for a in load_view(tmp_path / "run").alarms if a.rule == "grad_norm_growth"
    ]
