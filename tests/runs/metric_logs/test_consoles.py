"""What trainers print, typed as a user would: `trimtab diagnose training.log`. TRL's rows are printed by transformers itself;
verl's by verl where it is installed (`bash .ci/verl.sh`), elsewhere, like slime's, OpenRLHF's and prime-rl's, after their sources."""

from __future__ import annotations

import contextlib
import io
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from trimtab import cli
from trimtab.metric_logs import read_metric_log

RAY = "\x1b[36m(TaskRunner pid=2823, ip=10.0.0.1)\x1b[0m "
REAL = Path(__file__).parents[3].parent / "shared/data/real-logs/xling-grpo/training.log"


def diagnose(path, monkeypatch, capsys) -> tuple[int, str]:
    """The exit code and the screen of `trimtab diagnose PATH`."""
    monkeypatch.setattr(sys, "argv", ["trimtab", "diagnose", str(path)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return int(end.value.code or 0), capsys.readouterr().out


def verl_row(step: int, row: dict[str, object]) -> str:
    """As `concat_dict_to_str` of verl 0.9.1 prints a row; a test marked `verl` compares."""
    return " - ".join([f"step:{step}", *(f"{key}:{value!r}" for key, value in row.items())])


def falling(step: int) -> dict[str, object]:
    """Entropy gone by a thousandth within 80 steps, and reward lost at step 60."""
    return {
        "actor/entropy": np.float64(2.0 * math.exp(-step / 12)), "critic/score/mean": 0.5 if step < 60 else 0.01,
        "actor/grad_norm": 0.3 + 0.01 * (step % 3), "val-core/openai/gsm8k/reward/mean@1": 0.5, "perf/throughput": 812,
    }  # fmt: skip


def verl_console(banner: int = 10) -> str:
    lines = [f"{RAY}{{'actor_rollout_ref': {{'model': 'a, b, step: 3'}}}}" + " x, y" * banner]
    for step in range(81):
        repeated = "\x1b[32m [repeated 2x across cluster]\x1b[0m" if step == 5 else ""
        lines += [f"{RAY}{verl_row(step, falling(step))}{repeated}", f"{RAY}INFO step: 3 - loading - at:12"]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("banner", [10, 50_000])
def test_verls_console_behind_rays_prefixes_and_a_long_banner(tmp_path, monkeypatch, capsys, banner) -> None:
    path = tmp_path / "train.log"
    path.write_text(verl_console(banner))
    log = read_metric_log(path)
    assert (log.format, log.framework, log.steps.tolist()) == ("console", "verl", list(range(81)))
    assert log.columns["entropy"][1].tolist() == [2.0 * math.exp(-step / 12) for step in range(81)]
    assert set(log.columns) == {"entropy", "reward", "grad_norm", "held_out_reward", "tokens_per_s"}
    assert log.columns["tokens_per_s"][1].tolist() == [812.0] * 81  # the last of a line, also before a colour
    assert log.excluded == {}
    code, screen = diagnose(path, monkeypatch, capsys)
    assert (code, screen.startswith("UNHEALTHY")) == (1, True)
    assert "reward_collapse" in screen


def test_a_verl_console_keeps_nan_and_counts_a_cut_end(tmp_path) -> None:
    path = tmp_path / "train.log"
    rows = [verl_row(n, {"actor/entropy": math.nan if n == 1 else 0.5, "actor/lr": np.float32(-math.inf)}) for n in (1, 2)]  # fmt: skip
    path.write_text("\n".join([*rows, "step:3 - actor/entropy:0.25 - actor/lr:1.2"]))
    log = read_metric_log(path)
    assert repr(log.rows) == (
        "[(1, {'entropy': nan, 'learning_rate': -inf}), (2, {'entropy': 0.5, 'learning_rate': -inf}), "
        "(3, {'entropy': 0.25})]"
    )
    assert log.excluded == {"truncated last line": 1}


@pytest.mark.verl
def test_verl_prints_such_rows() -> None:
    logger = pytest.importorskip(
        "verl.utils.logger.aggregate_logger", reason="needs verl: run bash .ci/verl.sh"
    )
    assert logger.concat_dict_to_str(falling(7) | {"a": math.nan}, step=7) == verl_row(
        7, falling(7) | {"a": math.nan}
    )


TRL_ROW = {
    "loss": 0.25,
    "grad_norm": 1.5,
    "learning_rate": 1e-6,
    "reward": math.nan,
    "kl": 0.03125,
    "epoch": 0.5,
}


def printed(steps: int, bars: bool) -> str:
    """What transformers prints of `steps` logs, with progress bars on the same stream or without."""
    callbacks = pytest.importorskip("transformers.trainer_callback")
    screen = io.StringIO()
    state = SimpleNamespace(
        is_world_process_zero=True, is_local_process_zero=True, max_steps=steps, global_step=0
    )
    with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
        writer = callbacks.ProgressCallback() if bars else callbacks.PrinterCallback()
        writer.on_train_begin(None, state, None)
        for state.global_step in range(1, steps + 1):
            if bars:
                writer.training_bar.mininterval = 0  # a step takes seconds, not less than tqdm shows
            writer.on_step_end(None, state, None)
            writer.on_log(None, state, None, logs=dict(TRL_ROW))
        if bars:
            writer.training_bar.close()
    return screen.getvalue()


@pytest.mark.parametrize("bars", [True, False])
def test_rows_that_transformers_prints(tmp_path, bars) -> None:
    path = tmp_path / "training.log"
    text = printed(12, bars)
    assert ("12/12 [" in text) is bars
    path.write_text("[run] a, b\n" + text)
    log = read_metric_log(path)
    assert (log.format, log.framework, log.steps.tolist()) == ("console", "trl", list(range(1, 13)))
    assert [list(values) for _, values in (log.columns["loss"], log.columns["kl"])] == [
        [0.25] * 12,
        [0.03125] * 12,
    ]
    assert np.isnan(log.columns["reward"][1]).tolist() == [True] * 12


@pytest.mark.parametrize("width", [60, 80, 132])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_verls_rows_wrapped_by_a_terminal(tmp_path, width, end) -> None:
    rows = [verl_row(step, falling(step)) for step in range(1, 13)]
    wrapped = [row[i : i + width] for row in rows for i in range(0, len(row), width)]
    (tmp_path / "wrapped.log").write_text(
        end.join([*wrapped, "(WorkerDict) loaded - took:3.5 s", ""]), newline=""
    )
    (tmp_path / "whole.log").write_text("\n".join([*rows, ""]))
    assert read_metric_log(tmp_path / "wrapped.log").rows == read_metric_log(tmp_path / "whole.log").rows


def test_a_trainers_rows_without_a_bar_and_with_evaluations(tmp_path) -> None:
    """`python train.py > log`: the bar goes to standard error, and no row has a step."""
    row = "{{'loss': 0.5, 'grad_norm': 0.2, 'reward': 0.{}, 'entropy': 1.0, 'learning_rate': 1e-06, 'epoch': 0.1}}"
    lines = [row.format(n) for n in range(10, 30)]
    lines.insert(8, "{'eval_loss': 0.4, 'eval_reward': 0.3, 'eval_runtime': 2.0, 'epoch': 0.1}")
    lines.append("{'train_runtime': 99.0, 'train_loss': 0.5, 'epoch': 1.0}")
    (tmp_path / "a.log").write_text("\n".join(lines))
    log = read_metric_log(tmp_path / "a.log")
    assert (log.framework, log.steps.tolist()) == ("trl", list(range(1, 21)))
    assert log.columns["reward"][1].tolist() == [n / 100 for n in range(10, 30)]
    assert [values.tolist() for values in log.columns["held_out_loss"]] == [[7], [0.4]]  # of step 8
    assert any("no row has a step" in note for note in log.notes)


def test_rows_wrapped_by_a_terminal_and_cut_by_a_bar(tmp_path) -> None:
    row = "{'loss': 0.25, 'grad_norm': 1.5, 'learning_rate': 1e-06, 'reward': 0.5}"
    wrapped = "\n".join(row[i : i + 23] for i in range(0, len(row), 23))
    bar = "\r  3%|3         | 3/100 [00:10<05:00,  3.1s/it]"
    path = tmp_path / "training.log"
    path.write_text(
        f"{bar}{wrapped}\n{bar.replace('3/100', '4/100')}{row[:30]}{bar.replace('3/100', '4/100')}{row[30:]}\n"
    )
    log = read_metric_log(path)
    want = {"reward": 0.5, "grad_norm": 1.5, "loss": 0.25, "learning_rate": 1e-6}
    assert log.rows == [(3, want), (4, want)]


@pytest.mark.skipif(not REAL.exists(), reason="needs shared/data/real-logs")
def test_a_real_console_log_of_trl(monkeypatch, capsys) -> None:
    log = read_metric_log(REAL)
    assert (log.framework, log.steps.tolist()) == ("trl", list(range(5, 51, 5)))
    code, screen = diagnose(REAL, monkeypatch, capsys)
    assert (code, screen.startswith("NOT JUDGED YET")) == (2, True)


SLIME = "[2026-11-23 10:00:0{}] model.py:918 - {}\n"


@pytest.mark.parametrize("updates", [1, 2])
def test_slimes_console_counts_rollouts_and_updates(tmp_path, updates) -> None:
    lines = []
    for rollout in range(4):
        lines.append(f"perf {rollout}: {{'rollout/response_len/mean': 100.0, 'perf/rollout_time': 2.5}}")
        lines.append(f"rollout {rollout}: {{'rollout/raw_reward': 0.{rollout}, 'rollout/truncated': 0.5}}")
        for k in range(updates):
            row = f"{{'train/loss': 0.5, 'train/entropy_loss': np.float64(1.5), 'train/grad_norm': nan, 'train/kl_loss': 0.{k}}}"
            lines.append(f"step {rollout * updates + k}: {row}")
        lines.append(f"perf {rollout}: {{'perf/step_time': 9.5}}")
    path = tmp_path / "slime.log"
    path.write_text("".join(SLIME.format(i % 10, line) for i, line in enumerate(lines)))
    log = read_metric_log(path)
    assert (log.framework, log.steps.tolist()) == ("slime", list(range(4 * updates)))
    assert log.columns["reward"][0].tolist() == [n * updates for n in range(4)]
    assert log.columns["reward"][1].tolist() == [0.0, 0.1, 0.2, 0.3]
    assert log.columns["step_s"][0].tolist() == log.columns["reward"][0].tolist()
    assert log.columns["entropy"][1].tolist() == [1.5] * (4 * updates)
    assert any(note.startswith("2 updates a rollout") for note in log.notes) is (updates == 2)


def test_openrlhfs_console(tmp_path) -> None:
    path = tmp_path / "ppo.log"
    line = "INFO 11-23 10:00:00 ppo_trainer.py:550] ✨ Global step {}: {{'policy_loss': 0.5, 'reward': 0.{}, 'ppo_kl': nan, 'vllm_kl': 0.01}}"  # fmt: skip
    path.write_text("".join(line.format(n, n) + "\n" for n in range(1, 4)))
    log = read_metric_log(path)
    assert (log.framework, log.steps.tolist()) == ("openrlhf", [1, 2, 3])
    assert log.columns["reward"][1].tolist() == [0.1, 0.2, 0.3]
    assert np.isnan(log.columns["policy_kl"][1]).all()


def test_prime_rls_console_of_trainer_and_orchestrator(tmp_path) -> None:
    trainer = "10:00:00 SUCCESS Step {} | 1m 12s | Loss 0.0012 | Entropy 0.4100 | Mismatch KL 0.0030 | Grad. Norm 0.2500 | LR 1.00e-06 | Throughput 8125 tokens/s | MFU 31.2% | Peak Mem. 61.0 GiB"  # fmt: skip
    orchestrator = "10:00:00 SUCCESS Step {} |   72.5s | Reward 0.5000 | Trainable 60/64 (93.8%) | Turns 3.5 | Branches 1.0 | Max Off-Policy 2 | Error 1.0% | Cancelled 0.0% | Truncation 12.5%"  # fmt: skip
    for name, line, want in (
        ("trainer.log", trainer, {"mismatch_kl": 0.003, "entropy": 0.41, "grad_norm": 0.25, "loss": 0.0012,
                                  "learning_rate": 1e-6, "step_s": 72.0, "tokens_per_s": 8125.0}),
        ("orchestrator.log", orchestrator, {"reward": 0.5, "truncated_frac": 0.125, "num_turns": 3.5}),
    ):  # fmt: skip
        (tmp_path / name).write_text("".join(line.format(n) + "\n" for n in (1, 2)))
        log = read_metric_log(tmp_path / name)
        assert (log.framework, log.steps.tolist(), log.rows[0][1]) == ("prime-rl", [1, 2], want)


def test_a_table_in_a_file_without_a_suffix_is_still_a_table(tmp_path) -> None:
    path = tmp_path / "log"
    path.write_text("step,reward\n1,0.5\n2,0.25\n")
    assert read_metric_log(path).format == "csv"
