"""`trimtab diagnose` on a metrics log: verdict, what was read as what, which rules could not run, exit codes."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from trimtab import open_run
from trimtab.cli import main
from trimtab.measure.sequences.metric_log import presence_of_log, series_of_log
from trimtab.metric_logs import read_metric_log
from trimtab.report.alarms import alarm_payload
from trimtab.report.metric_log_diagnosis import diagnose_log, log_diagnosis, log_diagnosis_lines
from trimtab.types import Alarm, Reading, Window


def write(path, n=120, seed=0, **changes):
    """A calm TRL-like log; `changes`: key -> function from step to value, or None to leave the key out."""
    random = np.random.default_rng(seed)
    with path.open("w") as file:
        for step in range(n):
            row = {
                "reward": 0.5 + 0.01 * random.normal(), "kl": 0.02 * math.exp(0.05 * random.normal()),
                "entropy": 0.4 * math.exp(0.05 * random.normal()), "grad_norm": math.exp(0.1 * random.normal()),
                "completions/mean_length": 100.0, "zorp": 1.0,
            }  # fmt: skip
            row |= {key: change(step) if change else None for key, change in changes.items()}
            row = {key: value for key, value in row.items() if key not in changes or changes[key] is not None}
            file.write(json.dumps({"step": step, **row}) + "\n")
    return path


def run(capsys, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["trimtab", "diagnose", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        main()
    out, err = capsys.readouterr()
    return int(left.value.code or 0), out, err


def test_a_calm_log_is_healthy_and_its_tails_are_said_to_be_unseen(tmp_path, capsys, monkeypatch):
    path = write(tmp_path / "m.jsonl")
    code, out, _ = run(capsys, monkeypatch, path)
    assert code == 0
    assert "HEALTHY" in out
    assert "the tails were not observed" in out
    assert "framework trl" in out
    assert "rules cannot fire without the tokens' log-probabilities" in out
    code, out, _ = run(capsys, monkeypatch, path, "--verbose")
    assert code == 0
    assert "length <- completions/mean_length" in out
    assert "unmapped zorp" in out
    (line,) = [line for line in out.splitlines() if "  needs the tokens' log-probabilities" in line]
    assert "total_high" in line


def test_json_says_the_same(tmp_path, capsys, monkeypatch):
    path = write(tmp_path / "m.jsonl", kl=None)
    code, out, _ = run(capsys, monkeypatch, path, "--json")
    found = json.loads(out)
    assert (code, found["exit_code"], found["verdict"]) == (0, 0, "healthy")
    assert (found["format"], found["framework"], found["num_steps"]) == ("jsonl", "trl", 120)
    assert found["unmapped"] == ["zorp"]
    assert "the log has no `kl`" in found["not_run"]["kl_break"]
    assert "--map kl=KEY" in found["not_run"]["kl_break"]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (
            {"grad_norm": lambda step: math.exp(0.1 * math.sin(step)) * (1 if step < 60 else 50)},
            "grad_norm_surge",
        ),
        ({"reward": lambda step: 0.5 + 0.01 * math.sin(step) - (0.4 if step > 80 else 0)}, "reward_drop"),
        ({"entropy": lambda step: math.nan if step == 70 else 0.4}, "nonfinite"),
        ({"entropy": lambda step: None if step == 70 else 0.4}, "nonfinite"),
    ],
)
def test_a_broken_log_alarms(tmp_path, capsys, monkeypatch, change, rule):
    code, out, _ = run(capsys, monkeypatch, write(tmp_path / "m.jsonl", **change), "--json")
    found = json.loads(out)
    assert code == 1
    assert rule in {alarm["rule"] for alarm in found["alarms"]}


def test_a_metric_that_stops_arriving_alarms(tmp_path, capsys, monkeypatch):
    """prime-rl leaves out what is not finite: the gap is all there is to see."""
    path = write(tmp_path / "m.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows[80:]:
        del row["grad_norm"]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, out, _ = run(capsys, monkeypatch, path, "--json")
    silent = [a for a in json.loads(out)["alarms"] if a["rule"] == "column_silent"]
    assert (code, silent[0]["slice"], silent[0]["since"]) == (1, "metrics/grad_norm", 80)


def test_a_short_log_is_not_judged_yet_and_a_foreign_one_is_blind(tmp_path, capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, write(tmp_path / "short.jsonl", n=5), "--json")
    assert (code, json.loads(out)["verdict"]) == (2, "not judged yet")
    (tmp_path / "foreign.jsonl").write_text('{"step": 1, "learning_rate": 0.1}\n' * 3)
    code, out, _ = run(capsys, monkeypatch, tmp_path / "foreign.jsonl", "--json")
    assert (code, json.loads(out)["verdict"]) == (2, "blind")


def test_options_reach_the_reader(tmp_path, capsys, monkeypatch):
    path = write(tmp_path / "m.jsonl")
    _, out, _ = run(
        capsys, monkeypatch, path, "--framework", "ours", "--format", "jsonl", "--map", "loss=zorp", "--json"
    )
    found = json.loads(out)
    assert (found["framework_why"], found["mapped"]["loss"]) == ("ours: as asked for", "zorp")


def test_the_usual_call_says_what_the_parsed_one_says(tmp_path, capsys, monkeypatch):
    """`diagnose PATH` and `diagnose PATH --json` do without typer's parsers."""
    path = write(
        tmp_path / "m.jsonl", reward=lambda step: 0.5 + 0.01 * math.sin(step) - (0.4 if step > 80 else 0)
    )
    assert run(capsys, monkeypatch, path) == run(capsys, monkeypatch, path, "--format", "jsonl")
    assert run(capsys, monkeypatch, path, "--json") == run(capsys, monkeypatch, "--json", path)
    assert run(capsys, monkeypatch, path, "--json")[0] == 1
    assert run(capsys, monkeypatch, path, "--jsno")[0] == 2


@pytest.mark.parametrize(
    "wrong", [["--framework", "keras"], ["--format", "xls"], ["--map", "reward"], ["--map", "kl=x"]]
)
def test_wrong_options_are_one_line_and_exit_code_2(tmp_path, capsys, monkeypatch, wrong):
    code, out, err = run(capsys, monkeypatch, write(tmp_path / "m.jsonl"), *wrong)
    assert (code, out) == (2, "")
    assert err.startswith("trimtab: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 50, b"hello", b"{}", b"[]", b"[1]", b'{"step": 1}', b"PAR1", b"\x1f\x8b", b":W&B"],
)
def test_rubbish_is_one_line_and_exit_code_2(tmp_path, capsys, monkeypatch, content):
    (tmp_path / "x").write_bytes(content)
    code, out, err = run(capsys, monkeypatch, tmp_path / "x")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "bug of ours" not in err


def test_the_series_of_a_log_keep_gaps_and_what_is_no_number(tmp_path):
    path = write(tmp_path / "m.jsonl", n=30, kl=lambda step: math.nan if step == 4 else 0.1, entropy=None)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    del rows[7]["grad_norm"]
    rows[9]["held_out_reward"] = 0.5
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    log = read_metric_log(path, framework="ours", mapping={"length": "completions/mean_length"})
    series, seen = series_of_log(log), presence_of_log(log)
    assert series["aggregate/grad_norm", "all"][0].tolist() == [*range(7), *range(8, 30)]
    assert series["aggregate/length", "all"][1].tolist() == [100.0] * 30
    assert np.flatnonzero(np.isnan(series["aggregate/kl", "all"][1])).tolist() == [4]
    assert seen.steps.tolist() == list(range(30))
    assert {name: places.tolist() for name, places in seen.nonfinite.items()} == {"metrics/kl": [4]}
    assert seen.arrived["metrics/grad_norm"].size == 29
    assert "metrics/held_out_reward" not in seen.arrived, "an evaluation comes when it is due"
    assert log.rows[9][1]["held_out_reward"] == 0.5


def test_outliers_that_were_clipped_are_counted(tmp_path, capsys, monkeypatch):
    path = write(
        tmp_path / "m.jsonl",
        reward=lambda step: 0.5 + 0.01 * math.sin(step) + (9.0 if step in (60, 90) else 0.0),
    )
    _, out, _ = run(capsys, monkeypatch, path, "--json")
    assert json.loads(out)["num_clipped"]["reward_drop"] == 2
    _, out, _ = run(capsys, monkeypatch, path, "--verbose")
    assert "reward_drop 2" in next(line for line in out.splitlines() if line.startswith("  clipped outliers"))


def test_a_composite_rule_says_what_it_lacks(tmp_path, capsys, monkeypatch):
    """It was said to need two metrics that the log has: their scales take 40 rows."""
    path = write(tmp_path / "m.jsonl", n=30, grad_norm=lambda step: 1.0 + step % 5 / 10)
    found = json.loads(run(capsys, monkeypatch, path, "--json")[1])
    assert found["pending"]["outcome_together"] == 30
    assert "outcome_together" not in found["not_run"]
    assert (
        "needs at least two of grad_norm, advantage_std; the log has grad_norm"
        in found["not_run"]["vanishing_together"]
    )
    still = write(tmp_path / "still.jsonl", n=60, grad_norm=lambda step: 1.0)
    found = json.loads(run(capsys, monkeypatch, still, "--json")[1])
    assert "reward and grad_norm hardly vary" in found["not_run"]["outcome_together"]


def test_values_a_rule_does_not_take_are_counted(tmp_path, capsys, monkeypatch):
    """KL of exactly 0 has no logarithm: kl_break leaves three out; kl_high takes it as it is, but not the NaN."""
    path = write(
        tmp_path / "m.jsonl",
        kl=lambda step: 0.0 if step in (1, 2, 50) else math.nan if step == 70 else 0.02 + step % 3 / 100,
    )
    _, out, _ = run(capsys, monkeypatch, path, "--json")
    left = json.loads(out)["left_out"]
    assert (left["kl_break"], left["kl_high"]) == (4, 1)
    assert set(left) <= {"kl_break", "kl_surge", "kl_step", "kl_leap", "kl_climb", "kl_high"}
    _, out, _ = run(capsys, monkeypatch, path, "--verbose")
    line = next(line for line in out.splitlines() if line.startswith("  left out values"))
    assert "kl_break 4" in line
    _, out, _ = run(capsys, monkeypatch, write(tmp_path / "calm.jsonl"), "--verbose")
    assert "left out values" not in out


def test_a_reward_part_that_is_missing_now_and_then_is_counted(tmp_path):
    """TRL writes NaN for a reward function that returned None: no alarm, but no silence either."""
    path = write(
        tmp_path / "m.jsonl",
        **{
            "rewards/a/mean": lambda step: math.nan if step % 10 == 0 else 0.5,
            "rewards/b/mean": lambda step: 0.2 + step % 3 / 100,
        },
    )
    found = diagnose_log(path)
    assert "nonfinite" not in {alarm.rule for alarm in found.alarms}
    assert found.left_out == dict.fromkeys(("reward_part_falls", "reward_part_jump", "reward_part_idle"), 12)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ten_thousand_steps_take_little_memory(tmp_path):
    path = write(tmp_path / "m.jsonl", n=10_000, **{f"x/{i}": lambda step: 0.12345678 for i in range(19)})
    code = """
import sys
from pathlib import Path
from trimtab import open_run
from trimtab.cli import main
try:
    main()
finally:
    status = Path("/proc/self/status").read_text()
    print(next(line for line in status.splitlines() if line.startswith("VmHWM")), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, "diagnose", str(path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode in (0, 1), done.stderr
    assert int(done.stderr.split()[1]) < 200 * 1024, done.stderr  # kB


def test_parts_of_the_reward_are_judged_where_there_are_two(tmp_path):
    """TRL logs `rewards/<function>/mean`; one function alone is the reward itself."""
    rng = np.random.default_rng(0)
    rows = [
        {"step": t, "reward": 0.6 + 0.02 * rng.normal(), "rewards/format/mean": 0.5 + 0.02 * rng.normal() + 0.3 * (t > 200),
         "rewards/correct/mean": 0.7 + 0.02 * rng.normal() - 0.3 * (t > 200)}
        for t in range(300)
    ]  # fmt: skip
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = diagnose_log(path)
    assert found.log.framework == "trl"
    assert found.log.mapped["reward_part:correct"] == "rewards/correct/mean"
    falls = [a for a in found.alarms if a.rule == "reward_part_falls"]
    assert [(a.slice, 200 < a.step < 240) for a in falls[:1]] == [("reward/correct", True)]
    path.write_text(
        "".join(json.dumps({k: v for k, v in row.items() if "format" not in k}) + "\n" for row in rows)
    )
    alone = diagnose_log(path)
    assert not [name for name in alone.log.mapped if name.startswith("reward_part")]
    assert alone.not_run["reward_part_falls"].startswith("the log has no two parts of the reward")


def test_overfitting_after_a_learning_curve_is_told_and_the_gap_is_derived(tmp_path):
    """Training loss goes on falling; the held-out loss turned at step 400. Evaluations every 20 steps."""
    rng = np.random.default_rng(0)
    path = tmp_path / "sft.jsonl"
    with path.open("w") as out:
        for t in range(1000):
            row = {"step": t, "loss": 2.0 * math.exp(-t / 300) + 0.3 + 0.02 * rng.normal()}
            if t % 20 == 0:
                row["eval_loss"] = (
                    2.0 * math.exp(-min(t, 400) / 300) + 0.35 + max(t - 400, 0) / 500 + 0.01 * rng.normal()
                )
            out.write(json.dumps(row) + "\n")
    found = diagnose_log(path)
    turns = [a for a in found.alarms if a.rule == "held_out_loss_turns"]
    assert 400 < turns[0].step <= 520
    assert "gap_growing" not in found.not_run
    series = series_of_log(found.log)
    steps, gap = series["supervised/gap", "all"]
    losses, held = series["aggregate/loss", "all"][1], series["aggregate/held_out_loss", "all"][1]
    assert steps[5] == 100
    assert gap[5] == pytest.approx(held[5] - losses[81:101].mean())


def test_a_log_that_hardly_any_rule_could_judge_is_not_called_healthy(tmp_path):
    """Step times alone, or ten rows of everything: calm, and no news of health."""
    rng = np.random.default_rng(2)
    times = [{"step": t, "step_time": 20.0 + float(rng.normal())} for t in range(100)]
    short = [
        {"step": t, "reward": 0.5 + 0.02 * float(rng.normal()), "kl": 0.01 + 0.001 * float(rng.random()), "entropy": 0.9 + 0.01 * float(rng.normal()),
         "grad_norm": 0.4 + 0.02 * float(rng.normal())}
        for t in range(10)
    ]  # fmt: skip
    for rows in (times, short):
        path = tmp_path / "log.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        verdict = diagnose_log(path).verdict
        assert (verdict.word, verdict.exit_code) == ("not judged yet", 2), verdict.reason


def test_a_reward_function_that_judged_nothing_is_no_broken_number(tmp_path):
    """TRL logs NaN for a function that returned None for all completions; the reward itself must be a number."""
    rng = np.random.default_rng(3)
    found = {}
    for key in ("rewards/math/mean", "reward"):
        rows = []
        for t in range(120):
            row = {"step": t, "reward": 0.5, "kl": 0.01, "rewards/math/mean": 0.4, "rewards/code/mean": 0.6}
            row = {k: v if k == "step" else v * (1 + 0.05 * float(rng.normal())) for k, v in row.items()}
            rows.append(row | ({key: math.nan} if t % 5 == 4 else {}))
        path = tmp_path / "log.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        with open_run(tmp_path / key.replace("/", "_")) as run:
            for row in rows:
                run.flush(row["step"], {k: v for k, v in row.items() if k != "step"})
        found[key] = [{a.rule for a in alarms} for alarms in (diagnose_log(path).alarms, run.alarms)]
    assert all("nonfinite" not in rules for rules in found["rewards/math/mean"])
    assert all("nonfinite" in rules for rules in found["reward"])


def test_what_cleared_means_is_said_where_something_did(tmp_path, capsys, monkeypatch):
    rng = np.random.default_rng(4)
    path = tmp_path / "log.jsonl"
    rows = [
        {"step": t, "grad_norm": float(np.exp(0.1 * rng.normal())) * (20.0 if t == 150 else 1.0)}
        for t in range(200)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = "\n".join(log_diagnosis_lines(log_diagnosis(diagnose_log(path))))
    assert text.count("cleared: back within its bound, or by then the level was the run's own") == 1
    assert "grad_norm_spike" in text


def test_gaps_of_a_csv_are_no_nan_and_one_that_lasts_is_a_silence(tmp_path, capsys, monkeypatch):
    """As pandas and W&B export it: cells of steps without a tool call are empty. A loss that stays empty stopped arriving."""
    random = np.random.default_rng(0)
    lines = ["step,reward,kl,entropy,grad_norm,tools/failure_frequency"]
    for step in range(120):
        reward, kl, entropy, norm = np.array([0.5, 0.02, 0.4, 1.0]) * np.exp(0.02 * random.normal(size=4))
        failed = f"{0.1 + 0.01 * random.normal():.4f}" if random.random() < 0.7 else ""
        lines.append(f"{step},{reward},{kl},{entropy},{norm},{failed}")
    (tmp_path / "gaps.csv").write_text("\n".join(lines))
    code, out, _ = run(capsys, monkeypatch, tmp_path / "gaps.csv", "--verbose")
    empty = sum(line.endswith(",") for line in lines)
    assert (code, "HEALTHY" in out) == (0, True)
    assert f"  {empty} empty cells in 1 column (tool_failure_frac) read as not logged" in out

    lines[81:] = [",".join("" if i == 4 else cell for i, cell in enumerate(line.split(","))) for line in lines[81:]]  # fmt: skip
    (tmp_path / "ends.csv").write_text("\n".join(lines))
    code, out, _ = run(capsys, monkeypatch, tmp_path / "ends.csv", "--json")
    alarms = json.loads(out)["alarms"]
    assert (code, [(a["rule"], a["slice"], a["since"]) for a in alarms]) == (
        1,
        [("column_silent", "metrics/grad_norm", 80)],
    )


def test_many_rules_on_one_reading_are_one_voice(tmp_path, capsys, monkeypatch):
    """Eight rules that can never fire must not buy a log of rewards alone a clean bill."""
    write(tmp_path / "m.jsonl", kl=None, entropy=None, grad_norm=None, **{"completions/mean_length": None})
    listed = [
        f"  - {{name: n{i}, metric: reward, detector: threshold, with: {{direction: down, limit: -1e30}}}}\n"
        for i in range(8)
    ]
    (tmp_path / "r.yaml").write_text("rules:\n" + "".join(listed))
    code, out, _ = run(capsys, monkeypatch, tmp_path / "m.jsonl", "--rules", tmp_path / "r.yaml")
    assert (code, "NOT JUDGED YET" in out) == (2, True)
    assert "too few readings could be judged: reward, by 1" in out

    short = write(tmp_path / "short.jsonl", n=14)
    _, without, _ = run(capsys, monkeypatch, short)
    (tmp_path / "r.yaml").write_text(
        "rules:\n" + "".join(line.replace("name: n", f"name: {metric}").replace("metric: reward", f"metric: {metric}") for line in listed for metric in ("reward", "kl", "entropy"))
    )  # fmt: skip
    code, out, _ = run(capsys, monkeypatch, short, "--rules", tmp_path / "r.yaml")
    assert (code, out.splitlines()[:2]) == (2, without.splitlines()[:2])
    assert "still collect their baselines" in out


def test_what_is_mapped_and_read_by_no_rule_is_said_so(tmp_path, capsys, monkeypatch):
    """A loss alone, and the largest mismatch: they print apart from what is judged; a held-out loss or a rule of the user's reads them."""
    calm = {"loss": lambda step: 1.0 + 0.01 * math.sin(step), "sampling/sampling_logp_difference/max": lambda step: 0.6 + 0.01 * math.cos(step)}  # fmt: skip
    path = write(tmp_path / "m.jsonl", **calm)
    (tmp_path / "r.yaml").write_text(
        "rules:\n  - {name: mm, metric: mismatch_max, detector: change, with: {direction: up}}\n"
    )
    _, out, _ = run(capsys, monkeypatch, path, "--verbose")
    label = "read by no rule (but for NaN and missing values) "
    (line,) = [line for line in out.splitlines() if label in line]
    names = ["loss <- loss", "mismatch_max <- sampling/sampling_logp_difference/max"]
    assert sorted(line.split(label)[1].split(", ")) == names
    (line,) = [line for line in out.splitlines() if line.startswith("  mapped ")]
    assert "kl <- kl" in line
    assert "loss" not in line
    found = json.loads(run(capsys, monkeypatch, path, "--json", "--rules", tmp_path / "r.yaml")[1])
    assert (found["unwatched"], found["mapped"]["loss"]) == (["loss"], "loss")
    both = write(tmp_path / "b.jsonl", **calm, eval_loss=lambda step: 1.1)
    assert json.loads(run(capsys, monkeypatch, both, "--json")[1])["unwatched"] == ["mismatch_max"]
    _, out, _ = run(capsys, monkeypatch, write(tmp_path / "c.jsonl"), "--verbose")
    assert "read by no rule" not in out


def test_an_alarm_without_a_bound_tells_none(tmp_path, capsys, monkeypatch):
    """An e-process bets on ranks and has no bound in the reading's unit; for what is no number there is none to keep."""
    path = write(tmp_path / "m.jsonl", kl=lambda step: 0.02 + 0.001 * (step % 7) + max(0.0, 0.01 * (step - 60)), entropy=lambda step: math.nan if step == 70 else 0.4)  # fmt: skip
    (tmp_path / "r.yaml").write_text(
        "rules:\n  - {name: ep, metric: kl, detector: e_process, with: {direction: up}}\n"
    )
    found = json.loads(run(capsys, monkeypatch, path, "--json", "--rules", tmp_path / "r.yaml")[1])
    told = {alarm["rule"]: alarm["what"] for alarm in found["alarms"]}
    assert re.fullmatch(r"ep: 0\.\d+", told["ep"])
    assert told["nonfinite"] == "NaN or infinity in metrics/entropy"


def test_several_values_that_are_no_number_are_counted(tmp_path):
    """As a run counts the tokens of a column."""
    reading = Reading("nonfinite/count", 7, Window(7, 7), "logprobs", 12.0, 0, 0)
    alarm = Alarm("nonfinite", 7, 7, "critical", "logprobs", (reading,), 0.0, "", "", "")
    assert alarm_payload(alarm)["what"] == "NaN or infinity in logprobs: 12 values"
    assert alarm_payload(replace(alarm, rule="kl_high", bound=3.0))["what"].endswith(": 12, bound 3")


def test_one_metric_off_two_keys_is_refused_and_a_framework_is_known_in_any_case(
    tmp_path, capsys, monkeypatch
):
    path = write(tmp_path / "m.jsonl")
    code, out, err = run(capsys, monkeypatch, path, "--map", "reward=kl", "--map", "reward=entropy")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--map reward is given twice, for kl and for entropy" in err
    code, out, _ = run(capsys, monkeypatch, path, "--framework", "TRL", "--verbose")
    assert (code, "framework trl: as asked for" in out) == (0, True)
    code, _, err = run(capsys, monkeypatch, path, "--framework", "TRLL")
    assert (code, "unknown framework 'TRLL'; one of trl, verl" in err) == (2, True)


def test_rows_that_later_ones_replaced_are_told_under_the_headline(tmp_path, capsys, monkeypatch):
    """A resume from step 80: the log holds steps 80 to 119 twice; in full, a line that cannot be read stands further down."""
    lines = write(tmp_path / "m.jsonl").read_text().splitlines()
    again = [json.dumps(json.loads(line) | {"reward": 0.51}) for line in lines[80:]]
    (tmp_path / "m.jsonl").write_text("\n".join([*lines, "no json", *again]) + "\n")
    screen = run(capsys, monkeypatch, tmp_path / "m.jsonl")[1]
    for reason in (
        "1 malformed line", "40 rows superseded: the log goes on from step 80 again (a resume or a restart)",
    ):  # fmt: skip
        assert f"  left out {reason}\n" in screen
    _, out, _ = run(capsys, monkeypatch, tmp_path / "m.jsonl", "--verbose")
    lines = out.splitlines()
    assert [line.split(":")[0] for line in lines[4:6]] == ["  left out 40 rows superseded", ""]
    assert lines.index("  left out 1 malformed line") > lines.index("") > 4
    assert out.count("superseded") == 1
    _, out, _ = run(capsys, monkeypatch, write(tmp_path / "n.jsonl"), "--verbose")
    assert out.splitlines()[4] == ""
