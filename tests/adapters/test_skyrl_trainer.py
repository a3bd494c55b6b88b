"""SkyRL's RayPPOTrainer, its `train()` run on the CPU (`skyrl_cpu`), watched. `bash .ci/skyrl.sh` makes the environment."""

from __future__ import annotations

import asyncio
import logging

import numpy as np
import pytest

pytest.importorskip("skyrl", reason="needs SkyRL: run bash .ci/skyrl.sh")
pytest.importorskip("skyrl_gym", reason="needs SkyRL's trainer: run bash .ci/skyrl.sh")
from tests.adapters.skyrl_cpu import PROMPTS, SAMPLES, lab_trainer
from trimtab.adapters.skyrl import watch
from trimtab.errors import UnsupportedError
from trimtab.report.run_view import load_view
from trimtab.runs import RunReader

pytestmark = pytest.mark.skyrl
STEPS, ROWS = 6, PROMPTS * SAMPLES
SMALL = {"min_tokens": 20, "min_trajectories": 2, "strict": True}


def called(trainer):
    return lambda output: [
        [call.partition(" ")[0] for call in e.called] for e in trainer.generator.episodes[-1]
    ]


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    logging.disable(logging.INFO)
    folder = tmp_path_factory.mktemp("skyrl") / "run"
    trainer = lab_trainer(STEPS)
    with watch(trainer, folder, tools=called(trainer), **SMALL):
        asyncio.run(trainer.train())
    return trainer, folder


def steps(folder):
    return list(RunReader(folder).rows("steps"))


def test_every_step_of_the_trainer_is_observed(watched):
    trainer, folder = watched
    rows = steps(folder)
    assert (
        [row["step"] for row in rows]
        == [step for step, _ in trainer.tracker.rows]
        == list(range(1, STEPS + 1))
    )
    own = [sum(sum(e.env_mask) for e in played) for played in trainer.generator.episodes]
    assert [row["slices"]["all"]["n_tokens"] for row in rows] == own
    assert [row["slices"]["all"]["n_trajectories"] for row in rows] == [ROWS] * STEPS
    seconds = [logged["timing/step"] for _, logged in trainer.tracker.rows]
    assert [row["duration_s"] for row in rows] == pytest.approx(seconds, rel=1e-5)
    assert list(RunReader(folder).rows("errors")) == []


def test_tokens_after_each_tool_are_those_of_the_episodes(watched):
    trainer, folder = watched
    for row, played in zip(steps(folder), trainer.generator.episodes, strict=True):
        after = sum(
            sum(own for own, tool in zip(e.env_mask, e.tool_index, strict=True) if tool) for e in played
        )
        assert row["slices"]["post_tool"]["n_tokens"] == after > 0
        owner = sum(
            sum(own for own, tool in zip(e.env_mask, e.tool_index, strict=True) if tool == 3) for e in played
        )
        assert row["slices"].get("post_tool/owner", {"n_tokens": 0})["n_tokens"] == owner


def test_mismatch_and_reward_are_the_trainers_own_numbers(watched):
    """SkyRL subtracts sampler and trainer too, and logs the mean and the largest."""
    trainer, folder = watched
    view = load_view(folder)
    p95 = [reading.value for reading in view.series("step/mismatch/p95", "all")]
    largest = [logged["policy/rollout_train_logprobs_abs_diff_max"] for _, logged in trainer.tracker.rows]
    assert len(p95) == STEPS
    assert all(0 < mine <= theirs * 1.02 for mine, theirs in zip(p95, largest, strict=True))
    rewards = [reading.value for reading in view.series("aggregate/reward", "all")]
    assert rewards[:1] == pytest.approx([trainer.tracker.rows[0][1]["reward/avg_raw_reward"]])


def test_advantages_are_those_before_the_loss_reduction(watched):
    """SkyRL divides them by the batch's tokens inside the update, and its callback at the step's end sees those."""
    trainer, _ = watched
    scaled = trainer.dispatch.batches[-1]["advantages"].abs().max()
    assert float(scaled) < 0.1  # what on_step_end would have given
    seen = lab_trainer(1)
    columns = []
    with watch(seen, trainer.trimtab_run.writer.folder.parent / "other", strict=True) as run:
        inner = run.observe
        run.observe = lambda **arrays: (columns.append(arrays), inner(**arrays))
        asyncio.run(seen.train())
    [arrays] = columns
    assert float(np.abs(arrays["advantages"]).max()) > 0.4
    played = seen.generator.episodes[0]
    assert arrays["token_ids"].tolist() == [token for e in played for token in e.ids]
    assert arrays["rollout_logprobs"].tolist() == pytest.approx([p for e in played for p in e.logprobs])
    assert np.abs(arrays["logprobs"] - arrays["rollout_logprobs"])[arrays["loss_mask"]].max() < 1e-4


def test_what_is_observed_and_what_is_not(watched):
    _, folder = watched
    row = steps(folder)[0]
    assert {"rollout_logprobs", "old_logprobs", "logprobs", "ref_logprobs", "advantages", "reward"} <= set(
        row["columns"]
    )
    assert {"mismatch", "drift", "reward"}.isdisjoint(row["not_observed"])
    assert "the workers keep their entropies" in row["not_observed"]["entropy"]
    drift = [reading.value for reading in load_view(folder).series("drift/p95", "all")]
    assert drift[0] < 1e-4 < drift[-1]


def test_several_optimizer_steps_a_batch_hide_staleness_and_say_so(tmp_path):
    trainer = lab_trainer(1, mini_batch=2)
    with watch(trainer, tmp_path / "run", strict=True):
        asyncio.run(trainer.train())
    assert "2 optimizer steps a batch" in steps(tmp_path / "run")[0]["not_observed"]["staleness"]


def test_rows_that_pad_a_batch_are_left_out(tmp_path):
    trainer = lab_trainer(1)
    trainer.cfg.trainer.recompute_old_logprobs_per_minibatch = False  # it takes no padded batch
    convert = trainer.convert_to_training_input
    seen = []

    def padded(output, uids):
        trainer.dispatch.get_lcm_dp_size = lambda: 3  # 16 rows become 18
        batch = convert(output, uids)
        seen.append(batch.metadata["pad_size"])
        return batch

    trainer.convert_to_training_input = padded
    with watch(trainer, tmp_path / "run", strict=True):
        asyncio.run(trainer.train())
    row = steps(tmp_path / "run")[0]
    assert seen == [2]
    assert row["slices"]["all"]["n_trajectories"] == ROWS
    assert row["slices"]["all"]["n_tokens"] == sum(sum(e.env_mask) for e in trainer.generator.episodes[0])


def test_the_watched_run_trains_the_same_weights(tmp_path):
    plain, watched = lab_trainer(2), lab_trainer(2)
    with watch(watched, tmp_path / "run", strict=True):
        asyncio.run(watched.train())
    asyncio.run(plain.train())
    one, two = (t.dispatch.models["policy"].state_dict() for t in (plain, watched))
    assert all(bool((one[name] == two[name]).all()) for name in one)


def test_a_second_watch_is_refused(watched):
    trainer, folder = watched
    with pytest.raises(UnsupportedError, match="already watched"):
        watch(trainer, folder.parent / "twice")
