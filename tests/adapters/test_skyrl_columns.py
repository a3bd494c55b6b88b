"""SkyRL's batches as columns, by hand. `test_skyrl_trainer.py` runs SkyRL's own trainer where it is installed (`bash .ci/skyrl.sh`)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from trimtab.adapters.skyrl import watch
from trimtab.adapters.skyrl.training_input import batch_columns, rollouts_of
from trimtab.errors import UnsupportedError
from trimtab.runs import RunReader


class Batch(dict):
    """A TrainingInputBatch as far as a reader of it goes: tensors by name, and metadata."""

    def __init__(self, pad_size=0, **tensors):
        super().__init__(tensors)
        self.metadata = {"pad_size": pad_size}


def right_aligned(**changes):
    """Two responses of 2 and 4 tokens after prompts of 3 and 2; the second has a tool's token. A third row pads the batch."""
    tensors = {
        "sequences": torch.tensor(
            [[0, 11, 12, 13, 21, 22], [31, 32, 41, 42, 43, 44], [0, 11, 12, 13, 21, 22]]
        ),
        "response_mask": torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 1, 1]]),
        "loss_mask": torch.tensor([[0.0, 0, 1, 1], [1, 1, 0, 1], [0, 0, 0, 0]]),
        "rollout_logprobs": torch.tensor([[0.0, 0, -1, -2], [-3, -4, 0, -5], [0, 0, -1, -2]]),
        "action_log_probs": torch.tensor([[-9.0, -9, -1.5, -2.5], [-3.5, -4.5, -7, -5.5], [-9, -9, -1, -2]]),
        "base_action_log_probs": None,
        "advantages": torch.tensor([[0.0, 0, 0.5, 0.5], [-0.5, -0.5, -0.5, -0.5], [0, 0, 0.5, 0.5]]),
    }
    return Batch(pad_size=1, **{**tensors, **changes})


def test_responses_are_right_aligned_and_padding_rows_are_left_out():
    columns = batch_columns(right_aligned())
    assert columns["lengths"].tolist() == [2, 4]
    assert columns["token_ids"].tolist() == [21, 22, 41, 42, 43, 44]
    assert columns["loss_mask"].tolist() == [True, True, True, True, False, True]
    assert columns["rollout_logprobs"].tolist() == [-1, -2, -3, -4, 0, -5]
    assert columns["logprobs"].tolist() == [-1.5, -2.5, -3.5, -4.5, -7, -5.5]
    assert columns["advantages"].tolist() == [0.5, 0.5, -0.5, -0.5, -0.5, -0.5]
    assert "ref_logprobs" not in columns


def test_turns_of_one_trajectory_share_its_number_and_its_last_reward():
    output = {
        "rewards": [[0.0, 0.0], [0.0, 1.0], [0.25]],
        "is_last_step": [False, True, True],
        "stop_reasons": ["a", "b", "c"],
    }
    rollouts = rollouts_of(output, ["p", "p", "q"], 7)
    assert rollouts.episode.tolist() == [7, 7, 8]
    assert rollouts.reward.tolist() == [1.0, 1.0, 0.25]
    assert rollouts.group.tolist() == [0, 0, 1]
    assert rollouts.stop_reason == ["a", "b", "c"]


class Trainer:
    """The methods of SkyRL 0.3.0's FullyAsyncRayPPOTrainer that are wrapped, in the order its loop calls them."""

    def __init__(self, mini_batch=2):
        settings = SimpleNamespace(
            train_batch_size=2, policy_mini_batch_size=mini_batch, update_epochs_per_batch=1
        )
        self.cfg = SimpleNamespace(trainer=settings)
        self.global_step, self.logged = 5, []
        self.tracker = SimpleNamespace(
            log=lambda data, step, commit=False: self.logged.append((data, step, commit))
        )

    def convert_generation_group_mini_batch_to_training_input(self, groups, dropped_groups=None):
        output = {"rewards": [[1.0], [0.0]], "stop_reasons": None}
        return self.convert_to_training_input(output, ["p", "q"])

    def convert_to_training_input(self, generator_output, uids):
        return right_aligned()

    def train_critic_and_policy(self, data):
        data["advantages"] = data["advantages"] / 100  # as _normalize_advantages does
        return {"loss": 0.0}

    def step(self, scheduled):
        groups = [
            SimpleNamespace(global_step_when_scheduled=s, generator_output={"response_ids": [[1]]})
            for s in scheduled
        ]
        data = self.convert_generation_group_mini_batch_to_training_input(groups)
        assert self.train_critic_and_policy(data) == {"loss": 0.0}
        self.tracker.log({"reward/avg_raw_reward": 0.5}, step=self.global_step, commit=False)
        self.tracker.log({"timing/step": 2.5}, step=self.global_step, commit=True)
        self.global_step += 1


def steps(folder):
    return list(RunReader(folder).rows("steps"))


def test_a_group_that_older_weights_sampled_has_no_old_log_probabilities(tmp_path):
    trainer = Trainer()
    with watch(trainer, tmp_path / "run", strict=True):
        trainer.tracker.log(
            {"eval/all/avg_score": 0.1}, step=4, commit=True
        )  # before training: closes no step
        trainer.step([5, 5])
        trainer.step([4, 4])
    fresh, stale = steps(tmp_path / "run")
    assert (fresh["step"], stale["step"]) == (5, 6)
    assert "old_logprobs" in fresh["columns"]
    assert "mismatch" not in fresh["not_observed"]
    assert "old_logprobs" not in stale["columns"]
    assert "older weights" in stale["not_observed"]["mismatch"]
    assert "total" not in stale["not_observed"]
    assert {"policy_version", "reward"} <= set(stale["columns"]) | {"policy_version"}
    assert fresh["metrics"] == {"reward/avg_raw_reward": 0.5, "timing/step": 2.5}
    assert fresh["duration_s"] == 2.5
    assert fresh["slices"]["all"] == {"n_tokens": 5, "n_trajectories": 2}
    assert fresh["slices"]["post_tool"]["n_tokens"] == 1
    assert [call[1:] for call in trainer.logged] == [(4, True), (5, False), (5, True), (6, False), (6, True)]


def test_what_a_batch_lacks_is_said(tmp_path):
    trainer = Trainer()
    trainer.convert_to_training_input = lambda output, uids: right_aligned(action_log_probs=None)
    with watch(trainer, tmp_path / "run", strict=True):
        trainer.step([5, 5])
    missing = steps(tmp_path / "run")[0]["not_observed"]
    assert "skipped the policy's forward pass" in missing["mismatch"]
    assert "use_kl_loss" in missing["drift"] or "skipped" in missing["drift"]


def test_a_malformed_batch_does_not_stop_the_trainer(tmp_path):
    trainer = Trainer()
    trainer.convert_to_training_input = lambda output, uids: right_aligned(loss_mask=torch.ones(3, 2))
    with watch(trainer, tmp_path / "run") as run:
        trainer.step([5, 5])
        assert run.num_failures == 1
    assert "no batch could be taken" in steps(tmp_path / "run")[0]["not_observed"]["mismatch"]


def test_another_trainer_is_refused(tmp_path):
    with pytest.raises(
        UnsupportedError, match="int has no convert_to_training_input, train_critic_and_policy, tracker"
    ):
        watch(3, tmp_path / "run")
