"""One small log, written in every format by the library that people write it with, reads to the same rows."""

from __future__ import annotations

import csv
import gzip
import json
import math

import duckdb
import pandas as pd
import pytest

from trimtab.metric_logs import read_metric_log

STEPS = [
    {"step": 1, "reward": 0.25, "kl": 0.5},
    {"step": 2, "reward": 0.5, "kl": math.nan},
    {"step": 4, "reward": math.inf, "kl": 0.75},
]
WANT = [(row["step"], {"reward": row["reward"], "kl": row["kl"]}) for row in STEPS]


def same(rows, want=WANT):
    assert [(step, {k: repr(v) for k, v in sorted(row.items())}) for step, row in rows] == [
        (step, {k: repr(v) for k, v in sorted(row.items())}) for step, row in want
    ]


def jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def write_jsonl(path):
    path.write_text(jsonl(STEPS))


def write_gz(path):
    path.write_bytes(gzip.compress(jsonl(STEPS).encode()))


def write_bom(path):
    path.write_bytes(b"\xef\xbb\xbf" + jsonl(STEPS).encode())


def write_utf16(path):
    path.write_text(jsonl(STEPS), encoding="utf-16")


def write_nested(path):
    rows = [{"step": row["step"], "data": {k: row[k] for k in ("reward", "kl")}} for row in STEPS]
    path.write_text(jsonl(rows))


def write_json_rows(path):
    path.write_text(json.dumps(STEPS, indent=1))


def write_json_columns(path):
    path.write_text(json.dumps({key: [row[key] for row in STEPS] for key in STEPS[0]}, indent=1))


def write_csv(path):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, STEPS[0])
        writer.writeheader()
        writer.writerows(STEPS)


def write_tsv(path):
    pd.DataFrame(STEPS).to_csv(path, sep="\t", index=False, na_rep="NaN")


def write_parquet(path):
    frame = pd.DataFrame(STEPS)  # noqa: F841 (DuckDB reads it by name)
    duckdb.sql(f"copy (select * from frame) to '{path}' (format parquet)")


@pytest.mark.parametrize(
    ("write", "format"),
    [
        (write_jsonl, "jsonl"), (write_gz, "jsonl"), (write_bom, "jsonl"), (write_utf16, "jsonl"), (write_nested, "jsonl"),
        (write_json_rows, "json"), (write_json_columns, "json"), (write_csv, "csv"), (write_tsv, "csv"),
        (write_parquet, "parquet"),
    ],
)  # fmt: skip
def test_the_same_log_in_every_format(tmp_path, write, format):
    path = tmp_path / "whatever.bin"  # the name tells nothing
    write(path)
    log = read_metric_log(path)
    assert log.format == format
    same(log.rows)
    same(read_metric_log(path, format=format).rows)
    assert log.excluded == {}


def test_a_trainer_state_and_the_newest_of_its_checkpoints(tmp_path):
    transformers = pytest.importorskip("transformers")
    for number in (5, 40):
        folder = tmp_path / f"checkpoint-{number}"
        folder.mkdir()
        history = [{"loss": 1.0 / s, "reward": s, "epoch": 0.1, "step": s} for s in range(1, number + 1)]
        history += [
            {"eval_loss": 2.0, "eval_reward": 0.5, "step": number},
            {"train_loss": 9.0, "step": number},
        ]
        state = transformers.TrainerState(global_step=number, log_history=history)
        state.save_to_json(str(folder / "trainer_state.json"))
    log = read_metric_log(tmp_path)
    assert (log.format, log.framework, len(log.rows)) == ("trainer_state", "trl", 40)
    assert log.rows[-1] == (40, {"reward": 40, "held_out_reward": 0.5, "loss": 0.025, "held_out_loss": 2.0})
    assert log.unmapped == ("train_loss",)  # the mean of the whole run is no step's loss


@pytest.mark.parametrize("indent", [None, 2])
def test_a_trainer_state_with_nan_in_it_is_read_on_one_line_or_many(tmp_path, indent):
    history = [{"loss": math.nan if s == 3 else 0.5, "reward": 1.0, "step": s} for s in range(1, 6)]
    text = json.dumps({"log_history": history, "max_steps": 5}, indent=indent)
    for end in ("", "\n"):
        (tmp_path / "trainer_state.json").write_text(text + end)
        for path in (tmp_path, tmp_path / "trainer_state.json"):
            log = read_metric_log(path)
            assert (log.format, [step for step, _ in log.rows]) == ("trainer_state", [1, 2, 3, 4, 5])
            assert [s for s, row in log.rows if math.isnan(row["loss"])] == [3]


def test_an_rlprobe_recording_reads_rank_zero_and_counts_the_others(tmp_path):
    rows = pd.DataFrame(  # noqa: F841
        [
            {"step": s, "rank": r, "reward_mean": s + 10.0 * r, "kl_positional": [0.1]}
            for s in range(3)
            for r in range(2)
        ]
    )
    duckdb.sql(f"copy (select * from rows) to '{tmp_path / 'steps.parquet'}' (format parquet)")
    log = read_metric_log(tmp_path)
    assert (log.format, log.framework) == ("rlprobe", "rlprobe")
    assert log.rows == [(s, {"reward": float(s)}) for s in range(3)]
    assert log.excluded == {"rows of other ranks": 3}
    assert log.unmapped == ()


def test_a_verl_file_logger_row(tmp_path):
    path = tmp_path / "exp.jsonl"
    data = {
        "actor/ppo_kl": 0.1, "actor/kl_loss": 0.2, "actor/pg_clipfrac": 0.3, "actor/pg_clipfrac_lower": 0.4,
        "critic/score/mean": 0.5, "critic/rewards/mean": 0.6, "response_length/mean": 8.5, "training/global_step": 7,
        "rollout_corr/rollout_is_eff_sample_size": 0.9, "val-core/gsm8k/acc/mean@4": 0.7, "critic/values/min": -1.0,
    }  # fmt: skip
    path.write_text(json.dumps({"step": 7, "data": data}) + "\n")
    log = read_metric_log(path)
    assert log.framework == "verl"
    assert log.rows == [
        (7, {
            "reward": 0.5, "held_out_reward": 0.7, "kl": 0.2, "policy_kl": 0.1, "clip_frac": 0.3, "dual_clip_frac": 0.4,
            "clamped_ess_frac": 0.9, "length": 8.5,
        })
    ]  # fmt: skip
    assert log.unmapped == ("critic/rewards/mean", "critic/values/min")
    told = " ".join(log.notes)
    for word in (
        "not KL to the reference",
        "dual clipping",
        "clamps the weights",
        "counts the tools' tokens",
    ):
        assert word in told


def test_a_wandb_export_with_sparse_evaluation_rows(tmp_path):
    """pandas writes the whole table: a null is a cell nobody filled, except where a dense column loses one number."""
    rows = []
    for step in range(1, 41):
        train = {
            "train/global_step": step,
            "train/reward": 0.1 * step,
            "train/kl": math.nan if step == 30 else 0.01,
        }
        rows.append({"_step": len(rows), **train})
        if step % 10 == 0:
            rows.append({"_step": len(rows), "train/global_step": step, "eval/reward": 0.5})
    pd.DataFrame(rows).to_csv(tmp_path / "history.csv", index=False)
    pd.DataFrame(rows).to_json(tmp_path / "history.jsonl", orient="records", lines=True)
    for name in ("history.csv", "history.jsonl"):
        log = read_metric_log(tmp_path / name)
        assert [step for step, _ in log.rows] == list(range(1, 41))
        assert {step for step, row in log.rows if "held_out_reward" in row} == {10, 20, 30, 40}
        bad = [
            (step, ours) for step, row in log.rows for ours, value in row.items() if not math.isfinite(value)
        ]
        if name == "history.jsonl":
            assert bad == [(30, "kl")]
            assert log.excluded == {"nulls read as absent, not as NaN": 36}
        else:  # CSV cannot tell a NaN of pandas from a value nobody logged
            assert bad == []
            assert "kl" not in dict(log.rows)[30]
            assert log.excluded == {"empty cells read as not logged": 37}
            assert log.notes[0].startswith(
                "37 empty cells in 2 columns (held_out_reward, kl) read as not logged"
            )


def test_an_empty_cell_was_not_logged_and_a_written_nan_is_one(tmp_path):
    """A tool that is not called in every step, in a CSV: no NaN. Blanks are empty, words for NaN and infinity are not."""
    lines = [
        f"{s},0.5,{'' if s % 4 == 0 else ' ' if s == 7 else 'nan' if s == 9 else 'inf' if s == 10 else 0.1}"
        for s in range(1, 41)
    ]
    (tmp_path / "t.csv").write_text("step,reward,tools/failure_frequency\n" + "\n".join(lines))
    log = read_metric_log(tmp_path / "t.csv", "trl")
    values = {s: row["tool_failure_frac"] for s, row in log.rows if "tool_failure_frac" in row}
    assert sorted(set(range(1, 41)) - values.keys()) == [4, 7, 8, 12, 16, 20, 24, 28, 32, 36, 40]
    assert {s: repr(v) for s, v in values.items() if not math.isfinite(v)} == {9: "nan", 10: "inf"}
    assert log.excluded == {"empty cells read as not logged": 11}
    assert "11 empty cells in 1 column (tool_failure_frac) read as not logged; pandas" in log.notes[0]


def test_without_a_global_step_a_foreign_row_is_no_nan(tmp_path):
    rows = [
        {"_step": i, "reward": 1.0, "kl": 0.1} if i % 5 else {"_step": i, "eval_reward": 0.5}
        for i in range(1, 51)
    ]
    pd.DataFrame(rows).to_json(tmp_path / "h.jsonl", orient="records", lines=True)
    log = read_metric_log(tmp_path / "h.jsonl")
    assert all(math.isfinite(value) for _, row in log.rows for value in row.values())
    assert sum("kl" in row for _, row in log.rows) == 40
    assert any("_step" in note for note in log.notes)


def test_nulls_that_stay_are_nan(tmp_path):
    """verl after a collapse: NaN is written as null, from a step on, in rows that all have the same keys."""
    rows = [{"step": s, "actor/grad_norm": 1.0 if s < 30 else None, "actor/lr": 1e-6} for s in range(40)]
    (tmp_path / "v.jsonl").write_text(jsonl(rows))
    log = read_metric_log(tmp_path / "v.jsonl")
    assert [step for step, row in log.rows if math.isnan(row["grad_norm"])] == list(range(30, 40))


@pytest.mark.parametrize("word", ["NaN", "nan", "Infinity", "-Infinity"])
def test_words_for_what_is_not_finite(tmp_path, word):
    (tmp_path / "t.jsonl").write_text(jsonl([{"step": 1, "kl": 0.1}, {"step": 2, "kl": word}]))
    value = read_metric_log(tmp_path / "t.jsonl").rows[1][1]["kl"]
    assert repr(value) == repr(float(word))
